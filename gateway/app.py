"""The gateway as an ASGI application, and the server that runs it.

create_app   wires the parts together for one settings value; nothing is opened before the lifespan starts
serve        runs it under uvicorn until a signal, and returns the exit code
"""

import contextlib
import time
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Route

from cacheplane.attribution import Attribution, Departures
from cacheplane.fleet import Fleet
from cacheplane.index import PrefixIndex
from cacheplane.placement import Placement
from gateway import logs
from gateway.admin import AdminApi, Page
from gateway.auth import Gate
from gateway.catalog import Catalog
from gateway.cluster import Cluster
from gateway.dispatch import Dispatcher
from gateway.explain import Explanations
from gateway.flow import ChatFlow
from gateway.health import Health
from gateway.leasedsessions import LeasedSessions
from gateway.link import HEARTBEAT_SECONDS
from gateway.live import LiveRequests
from gateway.metrics import Metrics
from gateway.policies import Policies
from gateway.prepare import Preparation
from gateway.protocol import BoundedHttpProtocol
from gateway.retainer import Retainer
from gateway.sessions import Sessions
from gateway.settings import Settings
from gateway.settle import Settlement
from gateway.surface import Surface, on_http_exception
from gateway.toolwaits import ToolWaits
from gateway.workers import WorkerSession
from tenants import Database, KeyStore, Ledger, PolicyStore, SaltStore

KEEP_ALIVE_SECONDS = 75
SHUTDOWN_SECONDS = 10
DRAIN_SECONDS = 4.0  # for the ledger; what the database does not take by then waits on disk
BACKLOG = 2048
SPILL_FILE = "ledger.spill"
EXIT_OK = 0
EXIT_FAILED = 1


class Gateway:
    """All parts of one gateway process, made from its settings. Raises SettingsError when a secret is missing."""

    def __init__(self, settings: Settings, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> None:
        self.database = Database(settings.database)
        self.ledger = Ledger(self.database, settings.home / SPILL_FILE)
        self.sessions = WorkerSession(settings.read_worker_token())
        fleet, index = Fleet(), PrefixIndex()
        departures = Departures(index)
        secret = settings.read_secret()
        attribution = Attribution(secret, fleet, index, departures)
        placement = Placement(fleet, index, time.monotonic, settings.placement)
        self.cluster = Cluster(
            self.sessions, settings.worker_urls, fleet, index, departures, placement, heartbeat_seconds
        )
        self.live = LiveRequests()
        self.metrics = Metrics(
            self.live.__len__,
            self.cluster.views,
            lambda: attribution.isolated,
            lambda: placement.tally.blind_share,
        )
        waits = ToolWaits(time.monotonic)
        leased = LeasedSessions()
        self.retainer = Retainer(self.cluster.client, waits, leased, self.metrics.leased, settings.tool_wait_priority)
        self.gate = Gate(KeyStore(self.database))
        self.sessions_api = Sessions(self.gate, leased, self.cluster.clients, self.metrics.ended, secret)
        self.policies = PolicyStore(self.database)
        salts, completion_tokens = SaltStore(self.database), settings.limits.completion_tokens
        self.chat = ChatFlow(
            self.gate,
            Preparation(self.cluster, salts, self.policies, attribution, waits, secret, completion_tokens),
            Dispatcher(self.cluster, placement, attribution, settings.limits.deadline_ms),
            self.retainer,
            self.live,
            Settlement(self.ledger, self.metrics, self.live),
            settings.limits,
        )

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            *self.sessions_api.routes(),
            *Catalog(self.gate, self.cluster).routes(),
            *Health(self.cluster).routes(),
            *Explanations(self.gate, self.database).routes(),
            *Policies(self.gate, self.policies).routes(),
            *AdminApi(self.gate, self.database, self.live, self.cluster, self.metrics).routes(),
            *Page().routes(),
        ]

    @contextlib.asynccontextmanager
    async def running(self, _app: Starlette) -> AsyncIterator[None]:
        """The lifespan: workers are followed inside it, and the ledger is written out after the last request."""
        await self.ledger.start()
        try:
            async with self.sessions, self.cluster, self.retainer:
                yield
        finally:
            await self.ledger.drain(DRAIN_SECONDS)
            await self.database.close()


def create_app(settings: Settings, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> Starlette:
    """The whole gateway for `settings.worker_urls`, as one ASGI application. Raises SettingsError."""
    gateway = Gateway(settings, heartbeat_seconds)
    app = Starlette(
        routes=gateway.routes(),
        middleware=[Middleware(Surface)],
        exception_handlers={HTTPException: on_http_exception},
        lifespan=gateway.running,
    )
    # A redirect would be built from the Host header; paths are exact instead.
    app.router.redirect_slashes = False
    return app


class Server(uvicorn.Server):
    """uvicorn's server, which would raise the signal again that it was stopped with; a clean stop is exit code 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            yield
            self._captured_signals.clear()


def server_for(settings: Settings) -> Server:
    """A server for the application, bounded and quiet, not started yet."""
    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=BoundedHttpProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    return Server(config)


def serve(settings: Settings) -> int:
    """Run until SIGINT or SIGTERM. Returns 0 after a clean stop, 1 when it could not start (the log says why).

    Raises SettingsError when a secret is missing.
    """
    logs.configure(settings.log_level)
    server = server_for(settings)
    try:
        server.run()
    except SystemExit:  # uvicorn's way to say that it cannot listen
        logs.get_logger("server").error("cannot start", host=settings.host, port=settings.port)
        return EXIT_FAILED
    return EXIT_OK if server.started else EXIT_FAILED
