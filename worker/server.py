"""The worker's HTTP surface: plain ASGI, token ids in, frames out."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from prometheus_client import generate_latest
from starlette.types import Receive, Scope, Send

from cacheplane.identity import Namespace, Span
from cacheplane.wire import Tier, encode_snapshot
from worker.compilation import Compilation
from worker.engine import Engine
from worker.grammar import Grammar, GrammarCompiler
from worker.metrics import EngineCollector, registry_of
from worker.publisher import EventPublisher
from worker.sequence import Emit
from worker.wire import (
    AbortRequest,
    End,
    ErrorFrame,
    Frame,
    GenerateRequest,
    Load,
    ModelInfo,
    ReleaseRequest,
    RetainRequest,
    SpanWire,
    WorkerError,
)

T = TypeVar("T")
_MAX_BODY = 32 << 20
_SEND_SECONDS = 30.0
_JSON, _NDJSON, _MSGPACK = b"application/json", b"application/x-ndjson", b"application/msgpack"
_CRASHED = ErrorFrame("internal", "the engine has stopped")


@dataclass(slots=True)
class Service:
    """What the surface speaks for. state: starting, ready, draining or failed."""

    info: ModelInfo
    engine: Engine
    compiler: GrammarCompiler
    publisher: EventPublisher
    token: str
    state: str = "starting"


class WorkerApp:
    """ASGI application of one worker."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._engine = service.engine
        self._compilation = Compilation(service.compiler)
        self._collector = EngineCollector(service.engine)
        self._metrics = registry_of(self._collector)
        self._queues: set[asyncio.Queue[Frame | None]] = set()
        self._arriving: list[int] = []  # prompt lengths of requests that the engine has not taken up yet
        self._routes: dict[tuple[str, str], Callable[[Receive, Send], Awaitable[None]]] = {
            ("GET", "/ready"): self._ready,
            ("GET", "/model"): self._model,
            ("GET", "/load"): self._load,
            ("GET", "/metrics"): self._scrape,
            ("GET", "/kv/snapshot"): self._snapshot,
            ("POST", "/generate"): self._generate,
            ("POST", "/abort"): self._abort,
            ("POST", "/release"): self._release,
            ("POST", "/retain"): self._retain,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            await self._route(scope, receive, send)
        except WorkerError as error:
            await _reply(send, error.body(), status=error.status)

    async def close(self) -> None:
        """Ends what runs beside the server."""
        await self._compilation.close()

    def fail(self) -> None:
        """The engine has crashed: every open stream ends with an error frame."""
        self._service.state = "failed"
        for queue in self._queues:
            queue.put_nowait(_CRASHED)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        if (method, path) == ("GET", "/health"):
            await _reply(send, b'{"status":"ok"}')
            return
        if not self._authorised(scope):
            raise WorkerError(401, "unauthorized", "the worker token is missing or wrong")
        handler = self._routes.get((method, path))
        if handler is None:
            raise WorkerError(404, "not_found", "no such path")
        await handler(receive, send)

    def _authorised(self, scope: Scope) -> bool:
        sent = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return hmac.compare_digest(sent, b"Bearer " + self._service.token.encode())

    async def _ready(self, _receive: Receive, send: Send) -> None:
        ready = self._service.state == "ready"
        await _reply(send, msgspec.json.encode({"state": self._service.state}), status=200 if ready else 503)

    async def _model(self, _receive: Receive, send: Send) -> None:
        await _reply(send, msgspec.json.encode(self._service.info))

    async def _load(self, _receive: Receive, send: Send) -> None:
        load, counters, info = self._engine.load, self._engine.counters, self._service.info
        report = Load(
            worker_id=info.worker_id,
            epoch=info.epoch,
            state=self._service.state,
            waiting=load.waiting + len(self._arriving),
            running=load.running,
            queued_prefill_tokens=load.queued_prefill_tokens + sum(self._arriving),
            decode_sequences=load.decode_sequences,
            free_blocks=load.free_blocks,
            total_blocks=self._engine.total_blocks,
            prefill_tps=counters.prefill_tps,
            decode_step_ms=counters.decode_step_ms,
            step=counters.steps,
            pub=self._service.publisher.pub,
            replay=self._service.publisher.replay,
            host_tps=self._engine.memory.reuse.load_tps(Tier.HOST),
            disk_tps=self._engine.memory.reuse.load_tps(Tier.DISK),
        )
        await _reply(send, msgspec.json.encode(report))

    async def _scrape(self, _receive: Receive, send: Send) -> None:
        self._collector.tasks = len(asyncio.all_tasks())
        self._collector.kv = await asyncio.wrap_future(self._engine.call(self._engine.memory.figures))
        await _reply(send, generate_latest(self._metrics), kind=b"text/plain; version=0.0.4")

    async def _snapshot(self, _receive: Receive, send: Send) -> None:
        epoch = self._service.info.epoch
        snapshot = await asyncio.wrap_future(self._engine.call(lambda: self._engine.snapshot(epoch)))
        await _reply(send, await asyncio.to_thread(encode_snapshot, snapshot), kind=_MSGPACK)

    async def _abort(self, receive: Receive, send: Send) -> None:
        request = _decode(await _body(receive), AbortRequest)
        aborted = await asyncio.wrap_future(self._engine.call(lambda: self._engine.abort(request.request_id)))
        await _reply(send, msgspec.json.encode({"aborted": aborted}))

    async def _release(self, receive: Receive, send: Send) -> None:
        request = _decode(await _body(receive), ReleaseRequest)
        if not request.tokens and not request.session:
            raise WorkerError(400, "bad_request", "neither tokens nor a session is named")
        spans = _spans(request.spans, self._service.info.block_size) if request.tokens else []
        blocks = await asyncio.wrap_future(self._engine.call(lambda: self._engine.release(request, spans)))
        await _reply(send, msgspec.json.encode({"released_blocks": blocks}))

    async def _retain(self, receive: Receive, send: Send) -> None:
        request = _decode(await _body(receive), RetainRequest)
        spans = _spans(request.spans, self._service.info.block_size)
        blocks = await asyncio.wrap_future(self._engine.call(lambda: self._engine.retain(request, spans)))
        await _reply(send, msgspec.json.encode({"retained_blocks": blocks}))

    async def _generate(self, receive: Receive, send: Send) -> None:
        if self._service.state != "ready":
            raise WorkerError(503, self._service.state, f"the worker is {self._service.state}")
        request = _decode(await _body(receive), GenerateRequest)
        _spans(request.spans, self._service.info.block_size)
        if request.n > self._service.info.max_n:
            raise WorkerError(400, "bad_request", f"n is at most {self._service.info.max_n}", "n")
        text = request.grammar
        grammars = [] if text is None else await self._compilation.grammars(text, request.tag, request.n)
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[Frame | None] = asyncio.Queue()

        def emit(frame: Frame) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, frame)

        self._queues.add(queue)  # before the engine has the request, which may be what crashes it
        try:
            await self._submit(request, grammars, emit)
            gone = asyncio.ensure_future(_disconnect(receive))
            gone.add_done_callback(lambda _: queue.put_nowait(None))
            try:
                await self._stream(queue, send, request.request_id)
            finally:
                gone.cancel()
        finally:
            self._queues.discard(queue)

    async def _submit(self, request: GenerateRequest, grammars: list[Grammar], emit: Emit) -> None:
        """Hands a request to the engine, which takes it up after the step that is running."""
        self._arriving.append(len(request.tokens))
        try:
            await asyncio.wrap_future(self._engine.call(lambda: self._engine.submit(request, grammars, emit)))
        finally:
            self._arriving.remove(len(request.tokens))

    async def _stream(self, queue: "asyncio.Queue[Frame | None]", send: Send, request_id: str) -> None:
        """Sends frames until the last one; a client that left, or does not read, has its request aborted."""
        ended = False
        try:
            headers = [(b"content-type", _NDJSON)]
            frames = [await queue.get()]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while not ended:
                while not queue.empty():
                    frames.append(queue.get_nowait())
                if None in frames:
                    return
                ended = isinstance(frames[-1], End | ErrorFrame)
                body = b"".join(msgspec.json.encode(frame) + b"\n" for frame in frames)
                async with asyncio.timeout(_SEND_SECONDS):
                    await send({"type": "http.response.body", "body": body, "more_body": not ended})
                if not ended:
                    frames = [await queue.get()]
        except TimeoutError:
            return
        finally:
            if not ended:
                self._engine.call(lambda: self._engine.abort(request_id))


def _spans(spans: list[SpanWire], block_size: int) -> list[Span]:
    """Checked spans: the first at 0, ascending, on block boundaries. A request without a namespace is refused here."""
    starts = [span.start for span in spans]
    if starts[:1] != [0] or any(start % block_size for start in starts) or starts != sorted(set(starts)):
        raise WorkerError(400, "bad_request", "spans start at 0 and ascend on block boundaries", "spans")
    try:
        return [Span(span.start, Namespace.from_hex(span.namespace)) for span in spans]
    except ValueError:
        raise WorkerError(400, "bad_request", "a namespace is 64 hex digits", "spans") from None


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WorkerError(400, "bad_request", str(error)[:300]) from None


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise WorkerError(400, "bad_request", "the body was cut short")
        body += message.get("body", b"")
        if len(body) > _MAX_BODY:
            raise WorkerError(413, "bad_request", f"the body is larger than {_MAX_BODY} bytes")
        if not message.get("more_body", False):
            return bytes(body)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _reply(send: Send, body: bytes, *, status: int = 200, kind: bytes = _JSON) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
