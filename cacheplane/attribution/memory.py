"""Sketches of each tenant's recent prompts, within a bound for each tenant and for all together."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from cacheplane.attribution.marks import SHAPE, Mark
from cacheplane.attribution.sketch import Sketch

TENANT_BYTES: Final = 1 << 20
TOTAL_BYTES: Final = 64 << 20
PROMPTS: Final = 64  # of one tenant: what a request is compared with

MARK_BYTES: Final = 480  # with its numbers and its place in the dictionary
SHAPE_BYTES: Final = 40 * SHAPE


class _Recent:
    """One tenant's sketches, oldest first, and the marks that they share, each with how many sketches use it."""

    def __init__(self) -> None:
        self.sketches: list[Sketch] = []
        self.marks: dict[int, Mark] = {}
        self.bytes = 0
        self._uses: dict[int, int] = {}

    def add(self, sketch: Sketch) -> None:
        self.sketches.append(sketch)
        self.bytes += sketch.bytes
        for mark in sketch.marks:
            uses = self._uses.get(mark.exact, 0)
            self._uses[mark.exact] = uses + 1
            if not uses:
                self.marks[mark.exact] = mark
                self.bytes += _cost(mark)

    def remove(self, sketch: Sketch) -> None:
        self.sketches.remove(sketch)
        self.bytes -= sketch.bytes
        for mark in sketch.marks:
            self._uses[mark.exact] -= 1
            if not self._uses[mark.exact]:
                del self._uses[mark.exact]
                self.bytes -= _cost(self.marks.pop(mark.exact))


class Memory:
    """Least recently used tenants go first, and of a tenant its oldest prompts.

    Bound: `tenant_bytes` for each tenant and `total_bytes` for all; a prompt that is larger is not remembered.
    Only the event loop's thread changes it; `marks` may be read from others.
    """

    def __init__(
        self, tenant_bytes: int = TENANT_BYTES, total_bytes: int = TOTAL_BYTES, prompts: int = PROMPTS
    ) -> None:
        self.bytes = 0
        self._tenant_bytes, self._total_bytes, self._prompts = tenant_bytes, total_bytes, prompts
        self._tenants: OrderedDict[str, _Recent] = OrderedDict()

    def __len__(self) -> int:
        """Tenants of whom something is remembered."""
        return len(self._tenants)

    def marks(self, tenant: str) -> Mapping[int, Mark]:
        """Marks of a tenant's recent segments, by their exact digest."""
        recent = self._tenants.get(tenant)
        return {} if recent is None else recent.marks

    def recent(self, tenant: str) -> list[Sketch]:
        """Latest first."""
        recent = self._tenants.get(tenant)
        return [] if recent is None else recent.sketches[::-1]

    def remember(self, sketch: Sketch) -> None:
        recent = self._tenants.setdefault(sketch.origin.tenant, _Recent())
        self._tenants.move_to_end(sketch.origin.tenant)
        self.bytes -= recent.bytes
        recent.add(sketch)
        while recent.sketches and (len(recent.sketches) > self._prompts or recent.bytes > self._tenant_bytes):
            recent.remove(recent.sketches[0])
        self.bytes += recent.bytes
        while self.bytes > self._total_bytes:
            _, gone = self._tenants.popitem(last=False)
            self.bytes -= gone.bytes

    def stored(self, sketch: Sketch) -> None:
        """Its blocks are cached now. Prompts that it begins with tell nothing that it does not tell: they go."""
        sketch.stored = True
        recent = self._tenants.get(sketch.origin.tenant)
        if recent is None or sketch not in recent.sketches:
            return
        self.bytes -= recent.bytes
        for earlier in [other for other in recent.sketches if _continues(sketch, other)]:
            recent.remove(earlier)
        self.bytes += recent.bytes


def _continues(sketch: Sketch, earlier: Sketch) -> bool:
    """Whether everything that is known of `earlier` is known of `sketch` too, as of a session's next turn."""
    return (
        earlier is not sketch
        and earlier.origin.space == sketch.origin.space
        and earlier.origin.epoch == sketch.origin.epoch
        and (earlier.stored or not earlier.origin.store)
        and (sketch.begins_with(earlier) or not earlier.marks)
        and sketch.shared(earlier) == len(earlier.keys) * earlier.block_size
    )


def _cost(mark: Mark) -> int:
    return MARK_BYTES + (SHAPE_BYTES if mark.shape else 0)
