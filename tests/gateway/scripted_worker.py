"""A worker without a model: the real wire over real sockets, doing what a script says.

It keeps a pretend cache of block hashes, so its cached counts, its events and its snapshots are consistent with each
other, and it publishes over a real ZMQ PUB with a real replay ROUTER.
"""

import asyncio
import contextlib
import json
import secrets
from collections import deque
from dataclasses import dataclass, field
from functools import cache
from types import TracebackType
from typing import Any, Self

import msgspec
import zmq
import zmq.asyncio
from aiohttp import web

from cacheplane.identity import BlockChain, Namespace, Span
from cacheplane.wire import (
    Batch,
    BlockRemoved,
    BlockStored,
    Event,
    Message,
    Snapshot,
    SnapshotBlock,
    Tier,
    decode_replay_request,
    encode_batch,
    encode_message,
    encode_replay,
    encode_snapshot,
)
from gateway.worker_wire import GenerateRequest, Load, ModelInfo, ReleaseRequest, RetainRequest
from tests.gateway import tiny_model

TOKEN = "worker-token-for-tests"
BLOCK = 16
TOTAL_BLOCKS = 4096


@dataclass
class Script:
    """What happens to one request. Choices (`n`) all say the same `pieces`, one delta frame for each; a request that
    was begun elsewhere gets those that it has not accepted yet."""

    pieces: list[str] = field(default_factory=lambda: ["Hello", ", ", "world", "."])
    finish: str = "stop"
    stop: str | None = None
    refuse: tuple[int, str, str | None] | None = None  # status, code, param; before any frame
    hold_before_start: asyncio.Event | None = None
    hold_before_first: asyncio.Event | None = None
    hold_after: tuple[int, asyncio.Event] | None = None  # after that many pieces
    drop_after: int | None = None  # cut the connection after that many pieces; -1: before the start frame
    drop_at_end: bool = False  # cut it when every choice but the last has finished
    error_after: int | None = None  # send an error frame after that many pieces
    raw_line: bytes | None = None  # sent in place of everything else
    claims: dict[str, Any] = field(default_factory=dict)  # fields of the start frame, in place of the true ones
    end_claims: dict[str, Any] = field(default_factory=dict)  # and of the end frame
    store: bool = True


class ScriptedWorker:
    """One worker on loopback. `scripts` are used up in order; then every request gets the default one.

    capacity   blocks that its cache holds; beyond it the deepest blocks of other prompts go, then of the same
    """

    def __init__(
        self,
        worker_id: str = "w0",
        *,
        model: str = "tiny",
        fingerprint: str = "fp-1",
        context: int = 2048,
        capacity: int = TOTAL_BLOCKS,
        block_size: int = BLOCK,
    ) -> None:
        self.worker_id = worker_id
        self.model = model
        self.fingerprint = fingerprint
        self.context = context
        self.capacity = capacity
        self.block_size = block_size  # as it says; its blocks are of BLOCK tokens all the same
        self.figures: dict[str, Any] = {}  # fields of its load, in place of the true ones
        self.scripts: deque[Script] = deque()
        self.default = Script()
        self.requests: list[GenerateRequest] = []
        self.retained: list[RetainRequest] = []
        self.released: list[ReleaseRequest] = []
        self.lease_refusal: int | None = None  # a status
        self.token = TOKEN
        self.strangers = 0  # requests without it
        self.disconnected: list[str] = []
        self.disconnect_seen = asyncio.Event()
        self.state = "ready"
        self.frozen = False
        self.snapshot_gate: asyncio.Event | None = None  # snapshots wait for it
        self.port = 0
        self.finished: list[str] = []
        self._blocks: dict[bytes, bytes | None] = {}
        self._sent: list[Message] = []
        self._runner: web.AppRunner | None = None
        self._context = zmq.asyncio.Context()
        self._tasks: list[asyncio.Task[None]] = []
        self.epoch = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()
        self._context.destroy(linger=0)

    async def start(self) -> None:
        """Start, or start again on the same port: a new epoch with an empty cache, sequences from 0."""
        self.epoch = secrets.randbits(62)
        self._blocks.clear()
        self._sent.clear()
        self._pub = self._context.socket(zmq.PUB)
        self._router = self._context.socket(zmq.ROUTER)
        self.pub = f"tcp://127.0.0.1:{self._pub.bind_to_random_port('tcp://127.0.0.1')}"
        self.replay = f"tcp://127.0.0.1:{self._router.bind_to_random_port('tcp://127.0.0.1')}"
        self._tasks = [asyncio.create_task(self._answer_replays())]
        self._runner = web.AppRunner(self._app(), handler_cancellation=True, shutdown_timeout=0.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def kill(self) -> None:
        """Vanish: close the listener and cut every connection."""
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._runner is not None:
            server = self._runner.server
            for connection in [] if server is None else server.connections:
                if connection.transport is not None:
                    connection.transport.abort()
            await self._runner.cleanup()
            self._runner = None
            self._pub.close(linger=0)
            self._router.close(linger=0)

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._authorized], client_max_size=64 * 1024 * 1024)
        app.router.add_get("/model", self._model)
        app.router.add_get("/load", self._load)
        app.router.add_get("/kv/snapshot", self._snapshot)
        app.router.add_post("/generate", self._generate)
        app.router.add_post("/retain", self._retain)
        app.router.add_post("/release", self._release)
        return app

    @web.middleware
    async def _authorized(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            self.strangers += 1
            return _refusal(401, "unauthorized", None)
        if self.frozen:
            await asyncio.Event().wait()
        response: web.StreamResponse = await handler(request)
        return response

    async def _model(self, _request: web.Request) -> web.Response:
        info = ModelInfo(
            worker_id=self.worker_id,
            epoch=self.epoch,
            name=self.model,
            fingerprint=self.fingerprint,
            architecture="tiny",
            context_length=self.context,
            block_size=self.block_size,
            kv_dtype="float32",
            vocab_size=tiny_model.tokenizer().get_vocab_size(),
            tokenizer=tiny_model.tokenizer_json(),
            chat_template=tiny_model.TEMPLATE,
            bos_id=None,
            eos_id=tiny_model.EOS,
            stop_ids=[tiny_model.EOS],
            special_tokens=tiny_model.SPECIALS,
            max_n=8,
        )
        return web.Response(body=msgspec.json.encode(info), content_type="application/json")

    async def _load(self, _request: web.Request) -> web.Response:
        load = Load(
            worker_id=self.worker_id,
            epoch=self.epoch,
            state=self.state,
            waiting=0,
            running=0,
            queued_prefill_tokens=0,
            decode_sequences=0,
            free_blocks=TOTAL_BLOCKS - len(self._blocks),
            total_blocks=TOTAL_BLOCKS,
            prefill_tps=1000.0,
            decode_step_ms=20.0,
            step=len(self.requests),
            pub=self.pub,
            replay=self.replay,
        )
        said = msgspec.to_builtins(load) | self.figures
        return web.Response(text=json.dumps(said), content_type="application/json")

    async def _snapshot(self, _request: web.Request) -> web.Response:
        await _wait(self.snapshot_gate)
        blocks = [SnapshotBlock(digest, parent, 0) for digest, parent in self._blocks.items()]
        snapshot = Snapshot(self.epoch, len(self._sent) - 1, BLOCK, blocks)
        return web.Response(body=encode_snapshot(snapshot), content_type="application/msgpack")

    async def _generate(self, http: web.Request) -> web.StreamResponse:
        request = msgspec.json.decode(await http.read(), type=GenerateRequest)
        self.requests.append(request)
        script = self.scripts.popleft() if self.scripts else self.default
        if script.refuse is not None:
            return _refusal(*script.refuse)
        response = web.StreamResponse(headers={"content-type": "application/x-ndjson"})
        try:
            await self._play(http, response, request, script)
        except (asyncio.CancelledError, ConnectionResetError):
            self.disconnected.append(request.request_id)
            self.disconnect_seen.set()
            raise
        self.finished.append(request.request_id)
        return response

    async def _retain(self, http: web.Request) -> web.Response:
        self.retained.append(msgspec.json.decode(await http.read(), type=RetainRequest))
        return self._leased(b'{"retained_blocks": 0}')

    async def _release(self, http: web.Request) -> web.Response:
        self.released.append(msgspec.json.decode(await http.read(), type=ReleaseRequest))
        return self._leased(b'{"released_blocks": 0}')

    def _leased(self, body: bytes) -> web.Response:
        if self.lease_refusal is not None:
            return _refusal(self.lease_refusal, "scripted", None)
        return web.Response(body=body, content_type="application/json")

    async def _play(
        self, http: web.Request, response: web.StreamResponse, request: GenerateRequest, script: Script
    ) -> None:
        await _wait(script.hold_before_start)
        await response.prepare(http)  # with the first frame, as a worker does: until then the request waits for a slot
        if script.drop_after == -1:
            return _cut(http)
        if script.raw_line is not None:
            return await response.write(script.raw_line)
        await _send(response, self._start_frame(request) | script.claims)
        await _wait(script.hold_before_first)
        said = 0
        for count, piece in enumerate(script.pieces):
            if script.drop_after == count:
                return _cut(http)
            if script.error_after == count:
                return await _send(response, {"type": "error", "code": "internal", "message": "engine failure"})
            if script.hold_after is not None and script.hold_after[0] == count:
                await script.hold_after[1].wait()
            said += len(_ids(piece))
            for index in range(request.n):
                if index >= len(request.accepted) or len(request.accepted[index].tokens) < said:
                    await _send(response, _delta(index, piece, request))
        await self._end(http, response, request, script)
        return None

    def _start_frame(self, request: GenerateRequest) -> dict[str, Any]:
        chain = self._chain(request)
        most = (len(request.tokens) - 1) // BLOCK
        known = 0
        while known < min(most, len(chain)) and chain.hashes[known] in self._blocks:
            known += 1
        cached = {"device": known * BLOCK, "host": 0, "disk": 0}
        return {"type": "start", "prompt_tokens": len(request.tokens), "cached": cached, "queue_ms": 0.5}

    async def _end(
        self, http: web.Request, response: web.StreamResponse, request: GenerateRequest, script: Script
    ) -> None:
        if script.store and request.store:
            await self.store(self._chain(request))
        count = sum(len(_ids(piece)) for piece in script.pieces)
        open_ones = [index for index in range(request.n) if not _is_finished(request, index)]
        for index in open_ones:
            frame = {"type": "finish", "index": index, "reason": script.finish, "stop": script.stop}
            if script.drop_at_end and index == open_ones[-1]:
                return _cut(http)
            await _send(response, {**frame, "completion_tokens": count})
        timings = {"queue_ms": 0.5, "prefill_ms": 2.0, "decode_ms": 3.0}
        total = count * request.n
        end = {"type": "end", "prompt_tokens": len(request.tokens), "completion_tokens": total, "timings": timings}
        return await _send(response, end | script.end_claims)

    def _chain(self, request: GenerateRequest) -> BlockChain:
        spans = [Span(span.start, Namespace.from_hex(span.namespace)) for span in request.spans]
        return BlockChain.of(request.tokens, spans, BLOCK)

    async def store(self, chain: BlockChain) -> None:
        """Remember the blocks of a prompt and tell the subscribers about those that are new."""
        known = sum(digest in self._blocks for digest in chain.hashes)  # always a prefix: leaves are evicted first
        parents = (None, *chain.hashes)
        self._blocks.update(zip(chain.hashes[known:], parents[known:], strict=False))
        if known < len(chain):
            await self._publish(BlockStored(list(chain.hashes[known:]), parents[known], BLOCK))
        if gone := self._make_room(chain):
            await self._publish(BlockRemoved(gone, Tier.DEVICE, "evicted"))

    def _make_room(self, chain: BlockChain) -> list[bytes]:
        mine = set(chain.hashes)
        leaves_first = reversed(list(self._blocks))  # children were stored after their parents
        by_turn = sorted(leaves_first, key=mine.__contains__)
        gone = by_turn[: max(0, len(self._blocks) - self.capacity)]
        for digest in gone:
            del self._blocks[digest]
        return gone

    def forget(self) -> None:
        """Lose every block, and say nothing of it."""
        self._blocks.clear()

    @property
    def blocks(self) -> int:
        return len(self._blocks)

    async def _publish(self, event: Event) -> None:
        payload = encode_batch(Batch(0.0, [event], None, self.epoch))
        message = Message(b"kv", len(self._sent), payload)
        self._sent.append(message)
        await self._pub.send_multipart(encode_message(message.seq, payload))

    async def _answer_replays(self) -> None:
        while True:
            identity, first = decode_replay_request(await self._router.recv_multipart())
            for message in self._sent[max(0, first) :]:
                await self._router.send_multipart([identity, *encode_replay(message)])
            await self._router.send_multipart([identity, *encode_replay(None)])


@cache
def _ids(piece: str) -> list[int]:
    return tiny_model.tokenizer().encode(piece).ids


def _delta(index: int, piece: str, request: GenerateRequest) -> dict[str, Any]:
    logprobs = None
    if (most := request.sampling.logprobs) is not None:
        logprobs = [{"token": token, "logprob": -0.25, "top": [[token, -0.25]][:most]} for token in _ids(piece)]
    return {"type": "delta", "index": index, "text": piece, "tokens": _ids(piece), "logprobs": logprobs}


def _is_finished(request: GenerateRequest, index: int) -> bool:
    return index < len(request.accepted) and request.accepted[index].finished


def _refusal(status: int, code: str, param: str | None) -> web.Response:
    body = {"error": {"code": code, "message": f"scripted {code}", "param": param}}
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")


def _cut(http: web.Request) -> None:
    assert http.transport is not None
    http.transport.abort()


async def _send(response: web.StreamResponse, frame: dict[str, Any]) -> None:
    await response.write(msgspec.json.encode(frame) + b"\n")


async def _wait(event: asyncio.Event | None) -> None:
    if event is not None:
        await event.wait()
