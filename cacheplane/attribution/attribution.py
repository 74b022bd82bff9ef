"""The front of miss attribution: sketches prompts, and says for each what became of its tokens."""

import hashlib
import hmac
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cacheplane.attribution.comparison import Departed, compare
from cacheplane.attribution.contents import Contents
from cacheplane.attribution.departures import Cause, Departures
from cacheplane.attribution.marks import Segment, mark_all
from cacheplane.attribution.memory import Memory
from cacheplane.attribution.reasons import Divergence, Reason, Stairs
from cacheplane.attribution.sketch import MAX_SEGMENTS, Origin, Sketch, sketch
from cacheplane.attribution.strangers import Strangers
from cacheplane.fleet import Fleet
from cacheplane.identity import BlockChain, token_words
from cacheplane.index import PrefixIndex
from cacheplane.worker import WorkerState

_REASONS: Final = {
    Cause.EVICTED: Reason.EVICTED,
    Cause.TIER_DROPPED: Reason.TIER_DROPPED,
    Cause.WORKER_LOST: Reason.WORKER_LOST,
}


@dataclass(frozen=True, slots=True)
class Outlook:
    """What was known of a prompt's blocks when its worker was chosen, in tokens from the first on.

    predicted   on the chosen worker
    available   on the ready worker that has most
    stranded    on a worker that takes no requests, as one does that has just failed in the midst of this answer
    """

    predicted: int = 0
    available: int = 0
    stranded: int = 0


@dataclass(frozen=True, slots=True)
class Misses:
    """Tokens by reason, in the order in which the prompt has them; `prompt - cached` is their sum."""

    tokens: dict[Reason, int]
    divergence: Divergence | None = None


class Attribution:
    """Says for every prompt token that was not reused why it was not. For the reasons see `reasons`.

    secret   the installation's; digests of tenants' texts are made under keys derived from it
    isolated tokens by model that another tenant had sent before: an operator's figure, see `Strangers`
    contents under what prompts of all tenants are compared

    Only the event loop's thread calls it; `sketch` may be called in another. Nothing waits, nothing raises.
    """

    def __init__(
        self,
        secret: bytes,
        fleet: Fleet,
        index: PrefixIndex,
        departures: Departures,
        *,
        clock: Callable[[], float] = time.monotonic,
        memory: Memory | None = None,
        strangers: Strangers | None = None,
        contents: Contents | None = None,
    ) -> None:
        self.isolated: Counter[str] = Counter()
        self._key = hmac.digest(secret, b"saltway.sketch.v2", hashlib.sha256)
        self._fleet, self._index, self._departures, self._clock = fleet, index, departures, clock
        self._memory = memory or Memory()
        self._strangers = strangers or Strangers()
        self._contents = contents or Contents()

    def sketch(self, origin: Origin, tokens: Sequence[int], block_size: int, segments: Sequence[Segment]) -> Sketch:
        """segments: of the whole prompt, in order; what none of them covers is new to every comparison."""
        key = hashlib.blake2b(origin.tenant.encode(), key=self._key, digest_size=32).digest()
        segments = segments[:MAX_SEGMENTS]
        marks = mark_all(segments, key, self._memory.marks(origin.tenant))
        content = self._contents.keys(token_words(tokens), block_size)
        return sketch(origin, len(tokens), block_size, content, segments, marks)

    def outlook(self, model: str, chain: BlockChain, predicted: int, available: int) -> Outlook:
        """At the decision: its own figures, and what lies on workers of the model that it could not choose."""
        away = [
            name
            for worker in self._fleet.workers(self._clock())
            if worker.model == model and worker.state is not WorkerState.READY
            for name in worker.holders
        ]
        if not away:
            return Outlook(predicted, available)
        overlaps = self._index.match(chain.keys)
        blocks = max((overlaps[name].blocks for name in away if name in overlaps), default=0)
        return Outlook(predicted, available, blocks * chain.block_size)

    def attribute(self, sketch: Sketch, chain: BlockChain, outlook: Outlook, cached: int) -> Misses:
        """Once the worker has said how many tokens it reused. The prompt is remembered from here on.

        chain   of the prompt, under its tenant's namespace
        """
        recent = self._memory.recent(sketch.origin.tenant)
        earlier = [other for other in recent if other is not sketch]
        cached = min(cached, sketch.prompt_tokens)
        end = max(cached, sketch.reusable)
        stairs = Stairs(cached)
        stairs.to(min(end, outlook.predicted), Reason.PARITY)
        stairs.to(min(end, outlook.available), Reason.ROUTED_AWAY)
        stairs.to(min(end, outlook.stranded), Reason.WORKER_LOST)
        lost = self._departed(stairs, chain, end)
        _remembered(stairs, sketch, earlier, lost, end)
        departed = compare(sketch, earlier, stairs.at, end)
        isolated = self._rest(stairs, sketch, departed, end)
        stairs.to(sketch.prompt_tokens, Reason.BELOW_BLOCK)
        if len(earlier) == len(recent):  # and not a second attempt
            self.isolated[sketch.origin.model] += isolated
            self._memory.remember(sketch)
        return Misses(stairs.misses, departed.divergence if departed else None)

    def finished(self, sketch: Sketch, *, served: bool) -> None:
        """The request has ended; `served` when its whole prompt was computed."""
        if served and sketch.origin.store:
            self._memory.stored(sketch)

    def _departed(self, stairs: Stairs, chain: BlockChain, end: int) -> Reason | None:
        """Blocks that are known to have left, and those before them; returns how the last of them did."""
        first = stairs.at // chain.block_size
        causes = self._departures.causes(chain.keys[first : end // chain.block_size])
        known = causes.nonzero()[0]
        if not len(known):
            return None
        # A block whose departure was forgotten left like the next one that is remembered.
        changes = np.append(causes[known][1:] != causes[known][:-1], True)
        for place in known[changes].tolist():
            reason = _REASONS[Cause(causes.item(place))]
            stairs.to((first + place + 1) * chain.block_size, reason)
        return reason

    def _rest(self, stairs: Stairs, sketch: Sketch, departed: Departed | None, end: int) -> int:
        """Diverged or first seen; returns how much of the latter strangers have sent, by the same steps in any case."""
        new = np.zeros(len(sketch.keys) * sketch.block_size, np.bool_)
        new[stairs.at : end] = True
        for begin, stop in departed.ranges if departed else []:
            new[begin:stop] = False
        others = np.repeat(self._strangers.meet(sketch.origin.tenant, sketch.keys), sketch.block_size)
        if departed is not None:
            stairs.add(departed.divergence.reason, departed.divergence.tokens)
            stairs.at += departed.divergence.tokens
        stairs.to(end, Reason.FIRST_SEEN)
        return int(np.count_nonzero(others & new))


def _remembered(stairs: Stairs, sketch: Sketch, earlier: list[Sketch], lost: Reason | None, end: int) -> None:
    """What earlier prompts of the tenant began with, under this salt and under earlier ones."""
    stored = asked = rotated = 0
    for other in earlier:
        if other.origin.space != sketch.origin.space:
            continue
        if other.origin.epoch != sketch.origin.epoch:
            rotated = max(rotated, sketch.shared(other, rotated) if other.stored else 0)
        elif other.stored:
            stored = max(stored, sketch.shared(other, stored))
        else:
            asked = max(asked, sketch.shared(other, asked))
    stairs.to(min(end, stored), lost or Reason.EVICTED)
    stairs.to(min(end, asked), Reason.NOT_STORED)
    stairs.to(min(end, rotated), Reason.SALT_ROTATED)
