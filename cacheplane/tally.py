"""How decisions were made, counted since this gateway started."""

from collections import Counter, defaultdict
from typing import Literal

Mode = Literal["events", "approximate", "load-only"]


class Tally:
    """Decisions by mode, and by worker as long as it is there.

    A decision is blind unless the chosen worker's events are followed whole.
    """

    def __init__(self) -> None:
        self.modes: Counter[Mode] = Counter()
        self._workers: defaultdict[str, Counter[Mode]] = defaultdict(Counter)

    def note(self, worker_id: str, mode: Mode) -> None:
        self.modes[mode] += 1
        self._workers[worker_id][mode] += 1

    def of(self, worker_id: str) -> Counter[Mode]:
        return Counter(self._workers.get(worker_id, ()))

    def forget(self, worker_id: str) -> None:
        """The worker left; its decisions stay in the sums."""
        self._workers.pop(worker_id, None)

    @property
    def blind_share(self) -> float:
        """Of all decisions, 0.0 before the first one."""
        total = self.modes.total()
        return 1 - self.modes["events"] / total if total else 0.0
