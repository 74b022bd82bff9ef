"""One request and its outcome: the facts that its ledger row, metrics, log line and live view are made from."""

import time
from dataclasses import dataclass, field
from typing import Literal, Protocol

from cacheplane.attribution import Misses
from cacheplane.placement import Decision
from gateway.stopwatch import Stopwatch
from gateway.tools.hermes import CallStart

State = Literal["received", "queued", "prefill", "decoding", "done"]
CLIENT_GONE = 499  # nginx's status for a client that closed first; only ever recorded, never sent


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Judged(Protocol):
    """What was said under schemas, see gateway/chat/outputs.py."""

    @property
    def any(self) -> bool: ...

    def violations(self) -> list[str]: ...


@dataclass(slots=True)
class Exchange:
    """Filled in as the request goes along its path. Counts are tokens, times are milliseconds.

    predicted_tokens   cached tokens that placement expected on the chosen worker
    available_tokens   the most that any worker of the fleet held
    cached_tokens      what the worker says it reused, of any tier
    template           names system prompt and tools, for metrics; "" before the prompt is rendered
    decision           where the last attempt went, and why; None before the first
    outputs            what was said under a schema, for the check at the end; the only text that an exchange holds
    replies            the tokens of each choice, once the worker has ended them
    calls              the calls of each choice that the client can answer, once the reply is whole
    misses             why the other prompt tokens were computed; None until the worker has begun
    """

    id: str
    dialect: str = "chat"
    watch: Stopwatch = field(default_factory=Stopwatch)
    created_at: int = field(default_factory=_now_ms)
    tenant_id: str = ""
    key_id: str = ""
    model: str = ""
    streamed: bool = False
    state: State = "received"
    worker_id: str = ""
    template: str = ""
    decision: Decision | None = None
    outputs: Judged | None = None
    replies: list[list[int]] = field(default_factory=list)
    calls: list[list[CallStart]] = field(default_factory=list)
    misses: Misses | None = None
    attempts: int = 0
    resumed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    predicted_tokens: int = 0
    available_tokens: int = 0
    completion_tokens: int = 0
    queue_ms: float = 0.0
    ttft_ms: float | None = None
    overhead_ms: float | None = None
    duration_ms: float = 0.0
    status: int = 0
    finish_reason: str | None = None
    error_code: str | None = None
    completed: bool = False

    def first_token(self) -> None:
        """The first token of the answer has come from the worker."""
        self.state = "decoding"
        if self.ttft_ms is None:
            self.ttft_ms = self.watch.total_ms

    def resume(self, decision: Decision, completion_tokens: int) -> None:
        """A worker has failed in the midst of the answer, and another goes on behind what the client has got. It
        computes the prompt again, so that what the first one had reused was not reused in the end."""
        self.placed(decision)
        self.resumed += 1
        self.completion_tokens = completion_tokens

    @property
    def placement_mode(self) -> str:
        return "" if self.decision is None else self.decision.mode

    @property
    def placement_reason(self) -> str:
        return "" if self.decision is None else self.decision.reason

    def placed(self, decision: Decision) -> None:
        """Another attempt, on the worker that was chosen for it; what an earlier one has told is void."""
        self.attempts += 1
        self.state = "queued"
        self.decision = decision
        self.worker_id = decision.worker.id
        self.predicted_tokens = decision.predicted_tokens
        self.available_tokens = decision.available_tokens
        self.cached_tokens = self.completion_tokens = 0
        self.misses = None

    def fail(self, status: int, code: str | None) -> None:
        self.status = status
        self.error_code = code

    def close(self) -> None:
        """No more will happen; fixes the duration and, when no header was ever sent, the overhead."""
        self.state = "done"
        self.duration_ms = self.watch.total_ms
        if self.overhead_ms is None:
            self.overhead_ms = self.watch.own_ms
