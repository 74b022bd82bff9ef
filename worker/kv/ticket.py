"""A block on its way to disk."""

from concurrent.futures import Future
from dataclasses import dataclass, field

from worker.kv.record import DiskRecord
from worker.kv.staging import Image


@dataclass(slots=True, eq=False)
class Ticket:
    """Who the block is, its effective priority, the buffer that owns its bytes, and who waits."""

    record: DiskRecord
    priority: int
    image: Image
    future: Future[bool] = field(default_factory=Future)
