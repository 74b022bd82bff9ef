"""The operator's side: a JSON API behind an admin key, and the static page that shows it."""

import hashlib
import re
import time
from collections.abc import Awaitable, Callable
from importlib.resources import files
from urllib.parse import parse_qs

import msgspec
from starlette.routing import BaseRoute
from starlette.types import Scope, Send

from gateway.auth import Gate
from gateway.cluster import Cluster, WorkerView
from gateway.endpoint import Respond, get
from gateway.errors import BadRequestError, NotFoundError
from gateway.live import LiveRequest, LiveRequests, RecentRequest
from gateway.metrics import Metrics
from gateway.reply import Reply, send_json
from tenants import GROUPS, Database, HitRate, MissSums, hit_rates, misses_by

UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MAX_WINDOW_SECONDS = 90 * 86400
DEFAULT_WINDOW = "15m"
MAX_QUERY_FIELDS = 20

# Nothing from elsewhere, nothing inline, no frame around it: a page that holds an admin key runs only its own files.
PAGE_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGE_FILES = {
    "": ("index.html", b"text/html; charset=utf-8"),
    "style.css": ("style.css", b"text/css; charset=utf-8"),
    "app.js": ("app.js", b"text/javascript; charset=utf-8"),
    "table.js": ("table.js", b"text/javascript; charset=utf-8"),
    "format.js": ("format.js", b"text/javascript; charset=utf-8"),
    "icon.svg": ("icon.svg", b"image/svg+xml"),
}


class TenantRate(msgspec.Struct, frozen=True):
    """Sums of a window. Rates are shares of prompt_tokens, None when there were none.

    available_rate   some worker held; predicted_rate: the chosen one held; hit_rate: it delivered
    """

    tenant: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    predicted_tokens: int
    available_tokens: int
    completion_tokens: int
    hit_rate: float | None
    predicted_rate: float | None
    available_rate: float | None


class MissRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """Requests that have something in common: of one tenant and template (system prompt and tools), of one worker, ...

    `missed_tokens` by reason add up to the prompt's less the cached ones.
    """

    requests: int
    prompt_tokens: int
    available_rate: float | None
    routed_rate: float | None
    delivered_rate: float | None
    missed_tokens: dict[str, int]
    tenant: str | None = None
    template: str | None = None
    model: str | None = None
    worker: str | None = None


class MissReport(msgspec.Struct, frozen=True):
    """Why tokens were computed over the last `window_seconds`, what missed most first."""

    window_seconds: int
    by: str
    rows: list[MissRow]


class HitRates(msgspec.Struct, frozen=True):
    """Reuse over the last `window_seconds`; `since` and `until` are milliseconds since 1970, UTC."""

    window_seconds: int
    since: int
    until: int
    tenants: list[TenantRate]
    total: TenantRate


class LiveReply(msgspec.Struct, frozen=True):
    requests: list[LiveRequest]


class RecentReply(msgspec.Struct, frozen=True):
    requests: list[RecentRequest]


class WorkersReply(msgspec.Struct, frozen=True):
    workers: list[WorkerView]


def parse_window(text: str) -> int:
    """Seconds of a window such as 90s, 15m, 6h or 7d; at most 90 days. Raises BadRequestError."""
    match = re.fullmatch(r"([1-9][0-9]{0,6})([smhd])", text)
    seconds = int(match[1]) * UNIT_SECONDS[match[2]] if match else 0
    if not 0 < seconds <= MAX_WINDOW_SECONDS:
        raise BadRequestError("'window' must be a number and s, m, h or d, at most 90d.", param="window")
    return seconds


def tenant_rate(rate: HitRate) -> TenantRate:
    return TenantRate(
        tenant=rate.tenant_id,
        requests=rate.requests,
        prompt_tokens=rate.prompt,
        cached_tokens=rate.cached,
        predicted_tokens=rate.predicted,
        available_tokens=rate.available,
        completion_tokens=rate.completion,
        hit_rate=_share(rate.cached, rate.prompt),
        predicted_rate=_share(rate.predicted, rate.prompt),
        available_rate=_share(rate.available, rate.prompt),
    )


def miss_row(by: str, sums: MissSums) -> MissRow:
    names = (name.removesuffix("_id") for name in GROUPS[by])
    return MissRow(
        requests=sums.requests,
        prompt_tokens=sums.prompt,
        available_rate=_share(sums.available, sums.prompt),
        routed_rate=_share(sums.predicted, sums.prompt),
        delivered_rate=_share(sums.cached, sums.prompt),
        missed_tokens=sums.misses,
        **dict(zip(names, sums.group, strict=True)),
    )


def _share(tokens: int, prompt: int) -> float | None:
    return tokens / prompt if prompt else None


def summed(rates: list[HitRate]) -> HitRate:
    """All tenants together, under no name."""
    return HitRate(
        tenant_id="",
        requests=sum(rate.requests for rate in rates),
        prompt=sum(rate.prompt for rate in rates),
        available=sum(rate.available for rate in rates),
        predicted=sum(rate.predicted for rate in rates),
        cached=sum(rate.cached for rate in rates),
        completion=sum(rate.completion for rate in rates),
    )


class AdminApi:
    """What an operator may ask. Every answer is counts, ids and states; there is no prompt text to leak."""

    def __init__(self, gate: Gate, database: Database, live: LiveRequests, cluster: Cluster, metrics: Metrics) -> None:
        self._gate = gate
        self._database = database
        self._live = live
        self._cluster = cluster
        self._metrics = metrics

    def routes(self) -> list[BaseRoute]:
        return [
            get("/admin/api/hit-rates", self._json(self.hit_rates)),
            get("/admin/api/misses", self._json(self.misses)),
            get("/admin/api/live", self._json(self.live)),
            get("/admin/api/recent", self._json(self.recent)),
            get("/admin/api/workers", self._json(self.workers)),
            get("/metrics", self.metrics),
        ]

    async def hit_rates(self, scope: Scope) -> HitRates:
        seconds, since, until = _window(scope)
        async with self._database.reading() as session:
            rates = await hit_rates(session, since)
        return HitRates(seconds, since, until, [tenant_rate(rate) for rate in rates], tenant_rate(summed(rates)))

    async def misses(self, scope: Scope) -> MissReport:
        seconds, since, _ = _window(scope)
        by = _query(scope, "by") or "template"
        if by not in GROUPS:
            raise BadRequestError(f"'by' must be one of {', '.join(GROUPS)}.", param="by")
        async with self._database.reading() as session:
            found = await misses_by(session, by, since)
        return MissReport(seconds, by, [miss_row(by, sums) for sums in found])

    async def live(self, _scope: Scope) -> LiveReply:
        return LiveReply(self._live.in_flight())

    async def recent(self, _scope: Scope) -> RecentReply:
        return RecentReply(self._live.recent())

    async def workers(self, _scope: Scope) -> WorkersReply:
        return WorkersReply(self._cluster.views())

    async def metrics(self, scope: Scope, send: Send) -> None:
        """Behind the key too: what one tenant reuses would tell another what it asks."""
        await self._gate.admin(scope)
        await Reply(send).whole(200, self._metrics.text(), [], b"text/plain; version=0.0.4; charset=utf-8")

    def _json(self, answer: Callable[[Scope], Awaitable[object]]) -> Respond:
        async def respond(scope: Scope, send: Send) -> None:
            await self._gate.admin(scope)
            await send_json(send, await answer(scope), headers=[(b"cache-control", b"no-store")])

        return respond


class Page:
    """The static files of the operator's page, read once. They hold nothing secret: the page asks for the key."""

    def __init__(self) -> None:
        folder = files("gateway") / "dashboard"
        self._bodies = {
            path: ((folder / name).read_bytes(), content_type) for path, (name, content_type) in PAGE_FILES.items()
        }

    def routes(self) -> list[BaseRoute]:
        return [get("/admin", self.respond), get("/admin/{file:path}", self.respond)]

    async def respond(self, scope: Scope, send: Send) -> None:
        found = self._bodies.get(scope["path_params"].get("file", ""))
        if found is None:
            raise NotFoundError("There is no such file.", code="not_found")
        body, content_type = found
        tag = b'"' + hashlib.sha256(body).hexdigest()[:16].encode() + b'"'
        headers = [
            (b"content-security-policy", PAGE_POLICY),
            (b"x-content-type-options", b"nosniff"),
            (b"x-frame-options", b"DENY"),
            (b"referrer-policy", b"no-referrer"),
            (b"cache-control", b"no-cache"),
            (b"etag", tag),
        ]
        if (b"if-none-match", tag) in scope["headers"]:
            await Reply(send).whole(304, b"", headers, content_type)
        else:
            await Reply(send).whole(200, body, headers, content_type)


def _window(scope: Scope) -> tuple[int, int, int]:
    """Its seconds, and when it began and ends, in milliseconds since 1970."""
    seconds = parse_window(_query(scope, "window") or DEFAULT_WINDOW)
    until = time.time_ns() // 1_000_000
    return seconds, until - seconds * 1000, until


def _query(scope: Scope, name: str) -> str | None:
    try:
        values = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=MAX_QUERY_FIELDS).get(name)
    except ValueError:
        raise BadRequestError(f"The query has more than {MAX_QUERY_FIELDS} fields.", code="out_of_range") from None
    return values[0] if values else None
