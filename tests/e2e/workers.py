"""The workers of a running stack, asked directly."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import httpx2

from bench.stack import Stack
from cacheplane.wire import Snapshot, Tier, decode_snapshot


class Workers:
    """Speaks to each worker with the stack's own worker token."""

    def __init__(self, stack: Stack, admin: httpx2.Client) -> None:
        self._admin = admin
        token = (stack.home / "worker.token").read_text().strip()
        rows = admin.get("/admin/api/workers").raise_for_status().json()["workers"]
        self._clients = {
            row["id"]: httpx2.Client(
                base_url=row["url"], headers={"Authorization": f"Bearer {token}"}, timeout=30, trust_env=False
            )
            for row in rows
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            client.close()

    @property
    def names(self) -> list[str]:
        return sorted(self._clients)

    def load(self, worker: str) -> dict[str, Any]:
        load: dict[str, Any] = self._clients[worker].get("/load").raise_for_status().json()
        return load

    def blocks(self, worker: str) -> int:
        """Different blocks that the worker itself says it holds, on any tier."""
        return len({block.hash for block in self._snapshot(worker).blocks})

    def on_device(self, worker: str) -> int:
        """Those of them that are in its device pool."""
        return sum(block.tier == Tier.DEVICE for block in self._snapshot(worker).blocks)

    def indexed(self) -> bool:
        """Whether the gateway's index has heard of all blocks that the workers hold."""
        rows = self._admin.get("/admin/api/workers").raise_for_status().json()["workers"]
        return all(row["index_blocks"] == self.blocks(row["id"]) for row in rows)

    def granted(self) -> float:
        """Blocks that were put under a lease so far, on all workers."""
        return self._sum("saltway_worker_leases_total{", 'outcome="granted"')

    def leased(self) -> float:
        """Blocks that are under a lease now, on all workers and tiers."""
        return self._sum("saltway_worker_leased_blocks{")

    def _snapshot(self, worker: str) -> Snapshot:
        return decode_snapshot(self._clients[worker].get("/kv/snapshot").raise_for_status().content)

    def _sum(self, series: str, label: str = "") -> float:
        """Of a series in the metrics of all workers, where it has this label."""
        texts = [client.get("/metrics").raise_for_status().text for client in self._clients.values()]
        lines = [line for text in texts for line in text.splitlines() if line.startswith(series)]
        return sum(float(line.rpartition(" ")[2]) for line in lines if label in line)

    def idle(self) -> bool:
        loads = [self.load(worker) for worker in self.names]
        return all(load["running"] == 0 and load["waiting"] == 0 for load in loads)


def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether the condition comes true within the time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()
