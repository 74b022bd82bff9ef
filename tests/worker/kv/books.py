"""Books of leases whose blocks are letters, on a clock that a test moves."""

from cacheplane.wire import Tier
from worker.kv.accounts import ByTier
from worker.kv.cover import Cover
from worker.kv.leases import LeaseBook
from worker.kv.ranges import LeaseRange


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def books(*, budget: tuple[int, int, int] = (100, 100, 100), **options: int) -> tuple[LeaseBook[str], Clock]:
    """Every block is on the device."""
    clock = Clock()
    return LeaseBook(clock, lambda _: Tier.DEVICE, budget=ByTier(*budget), **options), clock


def tiered_books(*, budget: tuple[int, int, int]) -> tuple[LeaseBook[str], dict[str, Tier]]:
    """With a map of where each block is, the device by default."""
    where: dict[str, Tier] = {}
    return LeaseBook(Clock(), lambda block: where.get(block, Tier.DEVICE), budget=ByTier(*budget)), where


def lease(blocks: str, priority: int = 80, ttl: float = 10) -> list[LeaseRange[str]]:
    """One range; every letter is a block."""
    return [LeaseRange(blocks, priority, ttl)]


def cover_of(book: LeaseBook[str], block: str) -> Cover[str]:
    """What the book knows of a block under lease."""
    cover = book._coverage.of(block)
    assert cover is not None
    return cover
