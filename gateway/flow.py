"""The path of a chat request: auth, parse, normalize, render, identify, place, dispatch, relay, retain, settle.

Each step is crossed once, in that order, and each has a part of its own; this module is the order.
"""

from starlette.types import Receive, Scope, Send

from gateway.auth import Gate
from gateway.body import read_body
from gateway.disconnect import ClientGoneError, while_connected
from gateway.dispatch import Dispatcher
from gateway.errors import ApiError
from gateway.exchange import CLIENT_GONE, Exchange
from gateway.live import LiveRequests
from gateway.prepare import Preparation
from gateway.relay import relay_for
from gateway.reply import Reply, SlowReaderError
from gateway.retainer import Retainer
from gateway.settings import Limits
from gateway.settle import Settlement


class ChatFlow:
    """POST /v1/chat/completions, in plain ASGI.

    Before the key is good nothing is recorded; from then on every outcome is settled exactly once.
    """

    def __init__(
        self,
        gate: Gate,
        preparation: Preparation,
        dispatcher: Dispatcher,
        retainer: Retainer,
        live: LiveRequests,
        settlement: Settlement,
        limits: Limits,
    ) -> None:
        self._gate = gate
        self._preparation = preparation
        self._dispatcher = dispatcher
        self._retainer = retainer
        self._live = live
        self._settlement = settlement
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope["state"]["request_id"])
        principal = await self._gate.tenant(scope)
        exchange.tenant_id, exchange.key_id = principal.tenant_id or "", principal.key_id
        reply = Reply(send, self._limits.send_ms / 1000.0)
        self._live.enter(exchange)
        try:
            await self._serve(exchange, reply, scope, receive)
        except BaseException as error:
            _record(exchange, reply, error)
            raise
        finally:
            self._settlement.settle(exchange)

    async def _serve(self, exchange: Exchange, reply: Reply, scope: Scope, receive: Receive) -> None:
        exchange.watch.pause()
        body = await read_body(scope, receive, self._limits.body_bytes)
        exchange.watch.resume()
        await while_connected(receive, self._answer(exchange, reply, body))

    async def _answer(self, exchange: Exchange, reply: Reply, body: bytes) -> None:
        call = await self._preparation.prepare(exchange, body)
        try:
            await self._dispatcher.run(call, exchange, relay_for(call, exchange, reply))
        finally:  # also when the client hangs up on its last byte
            self._retainer.turn_ended(call, exchange)


def _record(exchange: Exchange, reply: Reply, error: BaseException) -> None:
    """What an exchange that did not end well is remembered as."""
    match error:
        case ApiError():
            exchange.fail(error.status, error.code)
        case ClientGoneError() if reply.completed:
            pass  # it has read its whole answer and closed at once: a success
        case ClientGoneError():
            exchange.fail(CLIENT_GONE, "client_closed")
        case SlowReaderError():
            exchange.fail(CLIENT_GONE, "client_stopped_reading")
        case Exception():
            exchange.fail(500, "internal_error")
        case _:
            exchange.fail(503, "shutting_down")
