"""The JSON structs of the worker's surface; its frames are in `gateway.frames`.

Declared here again, not imported: gateway and worker meet over HTTP only, and a test checks that the two agree.
What a worker says is bounded: a figure that none can have would draw every request to it, or break the sums.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0, lt=1 << 31)]  # of tokens, blocks, requests; the ledger's columns hold no more
TokenId = Annotated[int, Meta(ge=0, lt=1 << 31)]
Milliseconds = Annotated[float, Meta(ge=0, le=1e12)]
_Positive = Annotated[int, Meta(ge=1, lt=1 << 31)]
_Epoch = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_Rate = Annotated[float, Meta(ge=0, le=1e12)]


class Sampling(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How tokens are drawn. `logprobs`: None is off, k >= 0 is the chosen token plus k alternatives."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: list[str] = []
    stop_ids: list[int] = []
    logprobs: int | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[str, float] = {}
    ignore_eos: bool = False
    min_tokens: int = 0


class SpanWire(msgspec.Struct):
    """A namespace that holds from token `start` on; hexadecimal, 32 bytes."""

    start: int
    namespace: str


class RetentionRange(msgspec.Struct):
    """Keep the blocks of tokens start .. end - 1 (None: all that follow), for ttl_ms after their last use."""

    priority: int
    ttl_ms: int
    start: int = 0
    end: int | None = None


class Retention(msgspec.Struct):
    """A lease, taken when the request ends in place of the last one of its tag and session."""

    ranges: list[RetentionRange]
    session: str = ""


class Accepted(msgspec.Struct, omit_defaults=True):
    """What one choice has got from a worker that failed; the next one goes on behind it, unless it is finished."""

    tokens: list[int]
    finished: bool = False


class GenerateRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Token ids in, text and token ids out. `tag` is opaque: the worker shares its slots fairly between tags."""

    request_id: str
    tokens: list[int]
    spans: list[SpanWire]
    tag: str
    n: int = 1
    sampling: Sampling
    grammar: str | None = None
    deadline_ms: int
    store: bool = True
    priority: int = 50
    retention: Retention | None = None
    accepted: list[Accepted] = []


class RetainRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A lease on what a worker holds of these tokens."""

    tokens: list[int]
    spans: list[SpanWire]
    retention: Retention
    tag: str


class ReleaseRequest(msgspec.Struct, omit_defaults=True):
    """The leases of this session end, and what is held of these tokens goes first."""

    tag: str
    session: str = ""
    tokens: list[int] = []
    spans: list[SpanWire] = []


class ModelInfo(msgspec.Struct, kw_only=True):
    """What a worker serves, with all that is needed to render for it. `tokenizer` is the text of a tokenizer.json."""

    worker_id: str
    epoch: _Epoch
    name: str
    fingerprint: str
    architecture: str
    context_length: _Positive
    block_size: _Positive
    kv_dtype: str
    vocab_size: _Positive
    tokenizer: str
    chat_template: str
    bos_id: TokenId | None
    eos_id: TokenId
    stop_ids: list[TokenId]
    special_tokens: list[str]
    max_n: _Positive
    draft_model: str = ""


class Load(msgspec.Struct, kw_only=True):
    """A worker's own account of how busy it is; `epoch` changes at each start of its process.

    state   "ready", or a word for why not ("starting", "draining", ...); the fleet chooses only those that are ready
    """

    worker_id: str
    epoch: _Epoch
    state: str
    waiting: Count
    running: Count
    queued_prefill_tokens: Count
    decode_sequences: Count
    free_blocks: Count
    total_blocks: Count
    prefill_tps: _Rate
    decode_step_ms: Milliseconds
    step: int
    pub: str
    replay: str
    host_tps: _Rate = 0.0
    disk_tps: _Rate = 0.0
