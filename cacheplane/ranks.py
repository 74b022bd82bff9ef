"""Data-parallel ranks of one engine: each has a cache of its own, and so is a holder of its own."""

from cacheplane.subscriber import Sink
from cacheplane.wire import Batch


def holder(worker_id: str, rank: int, ranks: int) -> str:
    """The name of a rank among the holders of blocks; an engine that has one rank goes by its own."""
    return worker_id if ranks == 1 else f"{worker_id}/{rank}"


def holders(worker_id: str, ranks: int) -> list[str]:
    """The names of all of them, by rank."""
    return [holder(worker_id, rank, ranks) for rank in range(ranks)]


def rank_address(address: str, rank: int) -> str:
    """Where a rank publishes: vLLM and SGLang add the rank to the port. ValueError for an address without a port."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"not an address with a port: {address!r}")
    return f"{host}:{int(port) + rank}"


class Ranks:
    """Stands where a stream in which several ranks speak meets the index, and passes each on as its own holder.

    `strange` counts messages of ranks that the engine should not have; they are not passed on.
    """

    def __init__(self, sink: Sink, ranks: int) -> None:
        if ranks < 1:
            raise ValueError("an engine has at least one rank")
        self.strange = 0
        self._sink, self._ranks = sink, ranks

    def apply(self, worker_id: str, batch: Batch) -> None:
        rank = batch.dp_rank or 0
        if 0 <= rank < self._ranks:
            self._sink.apply(holder(worker_id, rank, self._ranks), batch)
        else:
            self.strange += 1

    def clear(self, worker_id: str, most: int | None = None) -> int:
        return sum(self._sink.clear(name, most) for name in holders(worker_id, self._ranks))

    def trust(self, worker_id: str) -> None:
        for name in holders(worker_id, self._ranks):
            self._sink.trust(name)

    def doubt(self, worker_id: str) -> None:
        for name in holders(worker_id, self._ranks):
            self._sink.doubt(name)

    def drop(self, worker_id: str, most: int | None = None) -> int:
        return sum(self._sink.drop(name, most) for name in holders(worker_id, self._ranks))
