"""A request's report in words, for people at a terminal."""

from collections.abc import Iterator
from datetime import UTC, datetime

from gateway.explain import RequestReport
from gateway.reuse import Placed

_MEANING = {
    "parity": "predicted on the worker, but it did not have them; look at its event stream",
    "routed_away": "another worker had them; see the decision",
    "worker_lost": "a worker had them that is gone or takes no requests",
    "evicted": "cached once, and evicted since; memory, a host tier or a lease keeps more",
    "tier_dropped": "cached once, and dropped from host or disk since; a larger tier or a lease keeps more",
    "not_stored": "sent before, and not stored (store=false, failed, or still being computed)",
    "salt_rotated": "sent before under an earlier salt",
    "diverged_tools": "sent before, behind tools that changed",
    "diverged_system": "sent before, behind a system prompt that changed",
    "diverged_history": "sent before, behind a history that changed",
    "diverged_volatile": "sent before, behind a value that changes each time",
    "first_seen": "new",
    "below_block": "below a full block, and the last block, which is always computed",
}
_WHY = {
    "only-worker": "no other worker could be chosen",
    "prefix": "it held more of the prompt than the next best",
    "sibling": "it was just sent a prompt that begins alike",
    "holder-busy": "another worker held more, and would have cost more",
    "load": "its load was least, and no worker held more",
    "tie": "workers were equal, and the prompt's own hash decided",
    "turn": "it was its turn",
}
_BASIS = {
    "events": "its blocks are known from its events",
    "approximate": "its blocks are guessed from what it was sent, or its event stream was broken",
    "load-only": "nothing was known of its blocks, or it was not believed",
}
_TERMS = {
    "queue": "computing the prompts before it",
    "prefill": "computing what of its own is not cached",
    "load": "bringing its blocks back from host or disk",
    "decode": "a step of each reply that it runs beside",
    "others": "what later requests lose: blocks computed twice, or a worker far beyond its share",
    "recent": "a share of what the worker was lately sent, so that work spreads",
}


def lines(told: RequestReport) -> Iterator[str]:
    at = datetime.fromtimestamp(told.created_at / 1000, UTC)
    who = f"tenant {told.tenant or '-'}, model {told.model or '-'}, status {told.status}"
    yield f"request {told.request_id}, {who}, {at:%Y-%m-%d %H:%M:%S} UTC"
    yield f"prompt {told.prompt_tokens} tokens, template {told.template or '-'}"
    stages = (
        ("available somewhere", told.available_tokens),
        (f"routed (on {told.worker or '-'})", told.routed_tokens),
        ("delivered from cache", told.cached_tokens),
    )
    for name, tokens in stages:
        yield f"  {name:<24}{_amount(tokens, told.prompt_tokens)}"
    if told.missed_tokens is None:
        yield "No worker told what it reused, so nothing can be said of the rest."
    else:
        yield "computed, because"
        for reason, tokens in sorted(told.missed_tokens.items(), key=lambda item: -item[1]):
            yield f"  {reason:<24}{_amount(tokens, told.prompt_tokens)}  {_MEANING.get(reason, '')}"
    yield from _diverged(told)
    yield from _decision(told.placed)
    yield from _times(told)


def _amount(tokens: int, prompt: int) -> str:
    return f"{tokens:>8}{100 * tokens / prompt if prompt else 0:>7.1f} %"


def _diverged(told: RequestReport) -> Iterator[str]:
    if told.diverged is not None:
        change = told.diverged
        where = f"{change.part.value}[{change.index}], token {change.token}"
        yield f"diverged in {where}: {change.kind.value.replace('_', ' ')}; it cost {change.tokens} tokens"
        yield f"  {told.hint}"


def _decision(placed: Placed | None) -> Iterator[str]:
    if placed is None:
        yield "It was never placed on a worker."
        return
    yield f"placed on {placed.worker} ({placed.reason}): {_WHY.get(placed.reason, 'by the policy in force')}"
    yield f"  by {placed.mode}: {_BASIS.get(placed.mode, '')}"
    yield "expected cost, of which the least is chosen"
    costs = {placed.worker: placed.cost_ms}
    if placed.runner_up is not None and placed.runner_up_cost_ms is not None:
        costs[placed.runner_up] = placed.runner_up_cost_ms
    for worker, terms in costs.items():
        yield f"  {worker:<24}{_sum(terms)}"
    for name, meaning in _TERMS.items():
        if any(terms.get(name) for terms in costs.values()):
            yield f"  {name:<24}{meaning}"


def _sum(terms: dict[str, float]) -> str:
    parts = " + ".join(f"{name} {value:.1f}" for name, value in terms.items() if name != "total" and value)
    return f"{terms['total']:.1f} ms" + (f" = {parts}" if parts else "")


def _times(told: RequestReport) -> Iterator[str]:
    if told.ttft_ms is not None:
        queued = f" ({told.queue_ms:.0f} ms in the worker's queue)" if told.queue_ms is not None else ""
        yield f"first token after {told.ttft_ms:.0f} ms{queued}, done after {told.duration_ms:.0f} ms"
