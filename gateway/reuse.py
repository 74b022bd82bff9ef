"""How reuse is told: in the usage and the headers of a reply, in the ledger, and in words to whoever can change it."""

from dataclasses import asdict

import msgspec

from cacheplane.attribution import Divergence, Kind, Misses, Part
from cacheplane.cost import Cost
from cacheplane.placement import Decision
from gateway.exchange import Exchange


class Change(msgspec.Struct, frozen=True):
    """Where this prompt left an earlier one of the same tenant.

    part     "system", "tools" or "history", in which the change begins
    kind     "order", "whitespace", "key_order", "volatile", "added", "removed" or "edit"
    index    which tool, which message of the history, from 0
    token    of the prompt: the change is not before it, and less than a block after it
    tokens   that were sent before and had to be computed again behind it
    """

    part: Part
    kind: Kind
    index: int
    token: int
    tokens: int


class Reuse(msgspec.Struct, frozen=True, omit_defaults=True):
    """Our own addition to a reply's usage, in prompt tokens; what was delivered is OpenAI's `cached_tokens`.

    available_tokens   some worker held
    routed_tokens      the chosen worker held, as far as the gateway knew
    missed_tokens      by reason; with the cached tokens they add up to the prompt
    """

    available_tokens: int
    routed_tokens: int
    missed_tokens: dict[str, int]
    diverged: Change | None = None


class Placed(msgspec.Struct, frozen=True):
    """A decision as it is kept; the terms of a cost are milliseconds, by name."""

    worker: str
    mode: str
    reason: str
    cost_ms: dict[str, float]
    runner_up: str | None
    runner_up_cost_ms: dict[str, float] | None


class Explanation(msgspec.Struct, frozen=True):
    """What the ledger keeps of a request beside its counts: no text, no tokens, no digest of them.

    Rows outlive versions: whatever is added here, or to what is in it, has a default.
    """

    placed: Placed | None = None
    diverged: Change | None = None


def reuse(exchange: Exchange) -> Reuse | None:
    """None until the worker has told what it reused."""
    if exchange.misses is None:
        return None
    missed = {reason.value: tokens for reason, tokens in exchange.misses.tokens.items()}
    return Reuse(exchange.available_tokens, exchange.predicted_tokens, missed, _change(exchange.misses.divergence))


def missed_header(misses: Misses) -> bytes:
    """As in `first_seen=1200,below_block=7`."""
    return ",".join(f"{reason}={tokens}" for reason, tokens in misses.tokens.items()).encode()


def explanation(exchange: Exchange) -> Explanation:
    divergence = None if exchange.misses is None else exchange.misses.divergence
    return Explanation(None if exchange.decision is None else _placed(exchange.decision), _change(divergence))


def _change(divergence: Divergence | None) -> Change | None:
    return None if divergence is None else Change(**asdict(divergence))


def _placed(decision: Decision) -> Placed:
    second = decision.runner_up
    return Placed(
        decision.worker.id,
        decision.mode,
        decision.reason,
        _terms(decision.cost),
        None if second is None else second[0],
        None if second is None else _terms(second[1]),
    )


def _terms(cost: Cost) -> dict[str, float]:
    terms = {name.removesuffix("_ms"): round(value, 3) for name, value in asdict(cost).items()}
    return {**terms, "total": round(cost.total_ms, 3)}


_HINTS = {
    (Part.TOOLS, Kind.ORDER): "The tools came in another order; send them in one order always, by name for example.",
    (Part.HISTORY, Kind.ORDER): "Messages changed places; append to a history and leave what was sent as it is.",
    (Part.TOOLS, Kind.ADDED): "A tool was added before others; add it at the end, or send all tools always.",
    (Part.TOOLS, Kind.REMOVED): "A tool was left out; send all tools always, and narrow them with tool_choice.",
    (Part.TOOLS, Kind.EDIT): "A tool's description or schema changed; keep it the same while a session lasts.",
    (Part.SYSTEM, Kind.EDIT): "The system prompt changed; put what differs at its end, or into the first message.",
    (Part.HISTORY, Kind.EDIT): "An earlier message was changed; append to a history and leave what was sent as it is.",
    (Part.HISTORY, Kind.ADDED): "A message was put in between earlier ones; append it at the end.",
    (Part.HISTORY, Kind.REMOVED): "Earlier messages were left out; drop many at once and seldom, not one each turn.",
}
_HINT_OF_KIND = {
    Kind.VOLATILE: "A value that differs each time (a date, number or id) stands early; move it to the last message.",
    Kind.WHITESPACE: "Only spaces or line ends differ (CRLF against LF, say); write them in one way always.",
    Kind.KEY_ORDER: "Only the order of JSON keys differs; serialise with sorted keys, or always from the same order.",
}


def hint(change: Change) -> str:
    """What to do about it, for the developer of the client."""
    general = "This part of the prompt is not as it was sent before; keep it the same while a session lasts."
    return _HINT_OF_KIND.get(change.kind) or _HINTS.get((change.part, change.kind), general)
