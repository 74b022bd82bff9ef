"""From a worker's frames to the client's reply: a stream of events, or one object at the end."""

from typing import Generic, TypeVar

from gateway.chat.reading import Reading
from gateway.chat.reply import ChatCollector, ChatStream, ReplyHead
from gateway.dispatch import Relay
from gateway.errors import ApiError, UpstreamError
from gateway.exchange import Exchange
from gateway.frames import EndFrame, Frame, StartFrame
from gateway.prepare import Call
from gateway.reply import Headers, Reply
from gateway.reuse import missed_header, reuse
from gateway.workers import MALFORMED, WorkerFailedError

OK = 200
Chat = TypeVar("Chat", ChatStream, ChatCollector)


def relay_for(call: Call, exchange: Exchange, reply: Reply) -> Relay:
    """The form that the request asked for."""
    if call.request.stream:
        return StreamRelay(call, exchange, reply, ChatStream)
    return PlainRelay(call, exchange, reply, ChatCollector)


def reply_headers(exchange: Exchange) -> Headers:
    """What every answer says of its own serving. Fixes the overhead: what comes after is the answer itself."""
    exchange.overhead_ms = exchange.watch.own_ms
    missed = [] if exchange.misses is None else [(b"x-saltway-miss", missed_header(exchange.misses))]
    return [
        *missed,
        (b"x-saltway-worker", exchange.worker_id.encode()),
        (b"x-saltway-cached-tokens", b"%d" % exchange.cached_tokens),
        (b"x-saltway-predicted-tokens", b"%d" % exchange.predicted_tokens),
        (b"x-saltway-available-tokens", b"%d" % exchange.available_tokens),
        (b"x-saltway-overhead-ms", b"%.3f" % exchange.overhead_ms),
        (b"x-saltway-placement", exchange.placement_mode.encode()),
    ]


def _head(call: Call, exchange: Exchange) -> ReplyHead:
    identity = exchange.id.removeprefix("req_")
    return ReplyHead(id=f"chatcmpl-{identity}", model=call.served.name, created=exchange.created_at // 1000)


class _Relay(Generic[Chat]):
    """What both forms have in common: a chat that each attempt begins again, and the exchange that it is told of."""

    def __init__(self, call: Call, exchange: Exchange, reply: Reply, form: type[Chat]) -> None:
        self._call = call
        self._exchange = exchange
        self._reply = reply
        self._form: type[Chat] = form
        self.begin()

    @property
    def started(self) -> bool:
        return self._reply.started

    def begin(self) -> None:
        reading = Reading(self._call.request, self._call.served.renderer.token_bytes)
        self._chat: Chat = self._form(reading, _head(self._call, self._exchange))

    def _explain(self, frames: list[Frame]) -> None:
        """The worker's first frame tells what it reused, so the rest can be accounted for from here on."""
        if isinstance(frames[0], StartFrame) and (told := reuse(self._exchange)) is not None:
            self._chat.explain(told)

    def _served(self) -> None:
        self._exchange.status = OK
        self._exchange.finish_reason = self._chat.finish_reasons[0]
        self._exchange.outputs = self._chat.outputs
        self._exchange.calls = self._chat.calls


class StreamRelay(_Relay[ChatStream]):
    """Server-sent events. Headers go out with the first token, so that until then another worker can be tried."""

    def begin(self) -> None:
        super().begin()
        self._held = b""

    async def pass_on(self, frames: list[Frame]) -> None:
        """Everything at once but the last batch, which `complete` sends together with the end of the response."""
        self._explain(frames)
        self._held += b"".join([self._chat.feed(frame) for frame in frames])
        if self._chat.closed and None in self._chat.finish_reasons:
            raise UpstreamError if self.started else WorkerFailedError(MALFORMED)
        if isinstance(frames[-1], StartFrame | EndFrame):
            return
        await self._open()
        data, self._held = self._held, b""
        await self._reply.events(data)

    async def _open(self) -> None:
        if not self.started:
            await self._reply.open_events(reply_headers(self._exchange))

    async def complete(self) -> None:
        self._served()
        await self._open()
        await self._reply.close_events(self._held)

    async def break_off(self, error: ApiError) -> None:
        await self._reply.close_events(self._held + self._chat.fail(error))


class PlainRelay(_Relay[ChatCollector]):
    """One JSON object. Nothing is sent before it is whole, so any failure of a worker can be made good elsewhere."""

    async def pass_on(self, frames: list[Frame]) -> None:
        self._explain(frames)
        try:
            for frame in frames:
                self._chat.feed(frame)
        except UpstreamError as error:
            raise WorkerFailedError(MALFORMED) from error

    async def complete(self) -> None:
        body = self._chat.reply()
        self._served()
        await self._reply.whole(OK, body, reply_headers(self._exchange))

    async def break_off(self, error: ApiError) -> None:
        """A reply that was being sent whole cannot be ended in another way; the surface drops the connection."""
        raise error
