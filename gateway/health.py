"""Whether the process is up, and whether it can serve. Open to everybody, so they say nothing else."""

from starlette.routing import BaseRoute
from starlette.types import Scope, Send

from gateway.cluster import Cluster
from gateway.endpoint import get
from gateway.reply import send_json


class Health:
    """GET /health: 200 while the process runs. GET /ready: 200 when a worker is ready and its blocks are indexed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def routes(self) -> list[BaseRoute]:
        return [get("/health", self.health), get("/ready", self.ready)]

    async def health(self, _scope: Scope, send: Send) -> None:
        await send_json(send, {"status": "ok"})

    async def ready(self, _scope: Scope, send: Send) -> None:
        ready = self._cluster.ready
        await send_json(send, {"status": "ready" if ready else "starting"}, 200 if ready else 503)
