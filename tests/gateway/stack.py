"""The real gateway on a real socket, in front of scripted workers, with two tenants and an operator."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import uvicorn
from openai import AsyncOpenAI
from sqlalchemy import select

from gateway.app import Server, create_app
from gateway.protocol import BoundedHttpProtocol
from gateway.settings import Settings
from gateway.up.ports import free_ports
from tenants import Database, LedgerRow, Tenant, now_ms
from tenants.keys import mint
from tenants.schema import Base
from tests.gateway.scripted_worker import TOKEN, ScriptedWorker

SECRET = b"a master secret of thirty-two bytes, or some more"
HEARTBEAT = 0.05


@dataclass
class Keys:
    acme: str
    globex: str
    admin: str
    revoked: str
    expired: str


@dataclass
class Stack:
    """What a test talks to."""

    url: str
    keys: Keys
    workers: list[ScriptedWorker]
    settings: Settings
    database: Database
    http: aiohttp.ClientSession
    exits: AsyncExitStack

    def client(self, key: str | None = None, retries: int = 0) -> AsyncOpenAI:
        """The official SDK, with acme's key unless another is given."""
        client = AsyncOpenAI(base_url=f"{self.url}/v1", api_key=key or self.keys.acme, max_retries=retries)
        self.exits.push_async_callback(client.close)
        return client

    async def post(self, body: Any, key: str | None = None, **headers: str) -> aiohttp.ClientResponse:
        """A chat request as bytes or JSON, read whole."""
        sent: dict[str, Any] = {"data": body} if isinstance(body, bytes) else {"json": body}
        auth = {"authorization": f"Bearer {self.keys.acme if key is None else key}"} | headers
        response = await self.http.post(f"{self.url}/v1/chat/completions", headers=auth, **sent)
        await response.read()
        return response

    async def get(self, path: str, key: str | None = None, **headers: str) -> aiohttp.ClientResponse:
        auth = {"authorization": f"Bearer {key}"} if key else {}
        response = await self.http.get(self.url + path, headers=auth | headers)
        await response.read()
        return response

    async def admin(self, path: str) -> Any:
        """An answer of the operator's API."""
        response = await self.get(f"/admin/api/{path}", self.keys.admin)
        assert response.status == 200
        return await response.json()

    async def ledger(self, count: int) -> list[LedgerRow]:
        """All rows, oldest first, once there are `count` of them."""
        rows: list[LedgerRow] = []

        async def enough() -> bool:
            async with self.database.session() as session:
                rows[:] = (await session.scalars(select(LedgerRow).order_by(LedgerRow.created_at))).all()
            return len(rows) >= count

        await eventually(enough)
        assert len(rows) == count
        return rows

    async def ready(self) -> None:
        """Until every worker is ready and its blocks are indexed."""

        async def all_synced() -> bool:
            views = (await self.admin("workers"))["workers"]
            return all(view["state"] == "ready" and view["synced"] for view in views)

        await eventually(all_synced)

    async def settled(self) -> None:
        """Until the index holds what the workers hold."""
        held = {worker.worker_id: worker.blocks for worker in self.workers}

        async def there() -> bool:
            views = (await self.admin("workers"))["workers"]
            return {view["id"]: view["index_blocks"] for view in views} == held

        await eventually(there)

    async def indexed(self, worker_id: str, blocks: int) -> None:
        """Until the index holds that many blocks of a worker."""
        await self.shows(worker_id, index_blocks=blocks)

    async def shows(self, worker_id: str, **figures: Any) -> None:
        """Until an operator sees these figures of a worker."""

        async def there() -> bool:
            views = (await self.admin("workers"))["workers"]
            return any(view["id"] == worker_id and figures.items() <= view.items() for view in views)

        await eventually(there)

    async def serving(self) -> None:
        """Until a request would be taken."""

        async def there() -> bool:
            return (await self.get("/ready")).status == 200

        await eventually(there)


async def eventually(condition: Any, seconds: float = 60.0) -> None:
    """Wait until `condition`, sync or async, is true; a bound for broken code, not a measure of time."""
    async with asyncio.timeout(seconds):
        while True:
            value = condition()
            if await value if asyncio.iscoroutine(value) else value:
                return
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(
    *workers: ScriptedWorker, wait: bool = True, urls: tuple[str, ...] | None = None, **options: Any
) -> AsyncIterator[Stack]:
    """A gateway in front of `workers`, all started; ready unless `wait` is off.

    urls      other worker addresses than those of `workers`
    options   settings by name
    """
    async with AsyncExitStack() as exits:
        home = Path(exits.enter_context(tempfile.TemporaryDirectory()))
        started = [await exits.enter_async_context(worker) for worker in workers or (ScriptedWorker(),)]
        settings = _settings(home, urls or tuple(worker.url for worker in started), options)
        database = await exits.enter_async_context(Database(settings.database))
        keys = await tenants(database)
        await exits.enter_async_context(_served(settings))
        http = await exits.enter_async_context(aiohttp.ClientSession())
        stack = Stack(settings.url, keys, started, settings, database, http, exits)
        if wait:
            await stack.ready()
        yield stack


def _settings(home: Path, urls: tuple[str, ...], options: dict[str, Any]) -> Settings:
    (home / "secret").write_bytes(SECRET)
    (port,) = free_ports(1)
    return Settings(home=home, port=port, worker_urls=urls, worker_token=TOKEN, **options)


async def tenants(database: Database) -> Keys:
    """The schema, two tenants, and keys of every kind."""
    now = now_ms()
    async with database.engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    made: dict[str, str] = {}
    async with database.transaction() as session:
        session.add_all([Tenant(id=slug, name=slug.title(), created_at=now) for slug in ("acme", "globex")])
        await session.flush()
        for name, tenant_id in (("acme", "acme"), ("globex", "globex"), ("revoked", "acme"), ("expired", "acme")):
            made[name], row = mint(tenant_id=tenant_id, name=name, now=now)
            row.revoked_at = now if name == "revoked" else None
            row.expires_at = now - 1 if name == "expired" else None
            session.add(row)
        made["admin"], row = mint(tenant_id=None, name="operator", now=now, role="admin")
        session.add(row)
    return Keys(**made)


@asynccontextmanager
async def _served(settings: Settings) -> AsyncIterator[None]:
    config = uvicorn.Config(
        create_app(settings, HEARTBEAT),
        host=settings.host,
        port=settings.port,
        http=BoundedHttpProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    server = Server(config)
    task = asyncio.create_task(server.serve())
    await eventually(lambda: server.started or task.done())
    try:
        yield
    finally:
        server.should_exit = True
        await task
