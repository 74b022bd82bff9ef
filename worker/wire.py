"""The worker's HTTP wire: what it is asked, and the frames that it streams. Bounded by construction.

Frames are one JSON object a line, tagged by `type`.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

MAX_TOP_LOGPROBS = 20
MAX_N = 16

_TokenId = Annotated[int, Meta(ge=0, lt=1 << 31)]
_Id = Annotated[str, Meta(min_length=1, max_length=128)]
_Stop = Annotated[str, Meta(min_length=1, max_length=1024)]
_TokenKey = Annotated[str, Meta(pattern="^[0-9]{1,9}$")]
_Penalty = Annotated[float, Meta(ge=-2, le=2)]


class Sampling(msgspec.Struct, frozen=True):
    """How tokens are chosen. temperature 0 is greedy; top_k 0 and top_p 1 switch those filters off.

    logprobs     None for none, k for the chosen token and the k likeliest
    logit_bias   token id, in decimal, to what is added to its logit
    """

    max_tokens: Annotated[int, Meta(ge=1)]
    temperature: Annotated[float, Meta(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Meta(ge=0)] = 0
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | None = None
    stop: Annotated[list[_Stop], Meta(max_length=16)] = []
    stop_ids: Annotated[list[_TokenId], Meta(max_length=64)] = []
    logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    frequency_penalty: _Penalty = 0.0
    presence_penalty: _Penalty = 0.0
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=10)] = 1.0
    logit_bias: Annotated[dict[_TokenKey, Annotated[float, Meta(ge=-100, le=100)]], Meta(max_length=1024)] = {}
    ignore_eos: bool = False
    min_tokens: Annotated[int, Meta(ge=0)] = 0


class SpanWire(msgspec.Struct, frozen=True):
    """From token `start` on, blocks belong to this namespace (64 hex digits)."""

    start: Annotated[int, Meta(ge=0)]
    namespace: Annotated[str, Meta(min_length=64, max_length=64)]


_Tokens = Annotated[list[_TokenId], Meta(min_length=1, max_length=1 << 21)]
_Spans = Annotated[list[SpanWire], Meta(min_length=1, max_length=64)]


class RetentionRange(msgspec.Struct, frozen=True):
    """How long, and how firmly, to keep the blocks of tokens start .. end - 1 (end None: all that follow).

    ttl_ms   counted from the moment when no running sequence uses a block any more
    """

    priority: Annotated[int, Meta(ge=0, le=100)]
    ttl_ms: Annotated[int, Meta(ge=0, le=7 * 24 * 3600 * 1000)]
    start: Annotated[int, Meta(ge=0)] = 0
    end: Annotated[int, Meta(ge=0)] | None = None


class Retention(msgspec.Struct, frozen=True):
    """A lease, taken when the request ends; it takes the place of the last lease of the same tag and session."""

    ranges: Annotated[list[RetentionRange], Meta(min_length=1, max_length=16)]
    session: Annotated[str, Meta(max_length=256)] = ""


class Accepted(msgspec.Struct, frozen=True):
    """What one choice has got from a worker that failed: it goes on behind these tokens, which are not sent again.

    finished   it has come to its end with them; nothing more of it is sent
    """

    tokens: Annotated[list[_TokenId], Meta(max_length=1 << 21)]
    finished: bool = False


class GenerateRequest(msgspec.Struct, frozen=True):
    """POST /generate.

    tag       opaque, serves fairness
    priority  among requests of the same tag, higher first; one that waits catches up
    grammar   a Lark grammar of llguidance
    store     False leaves no block behind
    accepted  for each choice what it has got elsewhere; empty for a request that begins here
    """

    request_id: _Id
    tokens: _Tokens
    spans: _Spans
    sampling: Sampling
    tag: Annotated[str, Meta(max_length=128)] = ""
    n: Annotated[int, Meta(ge=1, le=MAX_N)] = 1
    grammar: Annotated[str, Meta(max_length=1 << 20)] | None = None
    deadline_ms: Annotated[int, Meta(ge=1, le=24 * 3600 * 1000)] = 600_000
    store: bool = True
    retention: Retention | None = None
    priority: Annotated[int, Meta(ge=0, le=100)] = 50
    accepted: Annotated[list[Accepted], Meta(max_length=MAX_N)] = []


class AbortRequest(msgspec.Struct, frozen=True):
    """POST /abort."""

    request_id: _Id


class ReleaseRequest(msgspec.Struct, frozen=True):
    """POST /release: the owner will not come back to this prefix, to this session, or to both.

    tokens    of the prefix, which goes first from now on; with spans, or without for none
    session   whose lease ends
    """

    tokens: Annotated[list[_TokenId], Meta(max_length=1 << 21)] = []
    spans: Annotated[list[SpanWire], Meta(max_length=64)] = []
    tag: Annotated[str, Meta(max_length=128)] = ""
    session: Annotated[str, Meta(max_length=256)] = ""


class RetainRequest(msgspec.Struct, frozen=True):
    """POST /retain: a lease on what is held of this prefix, for one that was not known to be wanted when it ended."""

    tokens: _Tokens
    spans: _Spans
    retention: Retention
    tag: Annotated[str, Meta(max_length=128)] = ""


class Cached(msgspec.Struct, frozen=True):
    """Prompt tokens that were not computed, by the tier that they came from.

    device, host, disk   of whole blocks, which a gateway can foresee
    partial              beyond them, copied from a block that only begins alike, or from where a sequence ended
    """

    device: int = 0
    host: int = 0
    disk: int = 0
    partial: int = 0

    def within(self, tokens: int, block_size: int) -> "Cached":
        """What of it is of the first so many tokens, which a request came with: what its reply is known to begin with
        may be cached too. Of the last of their blocks a gateway foresees nothing, so that is a part."""
        most = (tokens - 1) // block_size * block_size
        device = min(self.device, most)
        host = min(self.host, most - device)
        disk = min(self.disk, most - device - host)
        rest = self.device + self.host + self.disk + self.partial - device - host - disk
        return Cached(device, host, disk, min(rest, tokens - device - host - disk))


class TokenLogprob(msgspec.Struct, frozen=True):
    """Natural logarithm of the model's own probability, before temperature, penalties and grammar."""

    token: int
    logprob: float
    top: list[tuple[int, float]]


class Start(msgspec.Struct, frozen=True, tag="start"):
    """The first frame: the prompt is admitted, this much of it was cached."""

    prompt_tokens: int
    cached: Cached
    queue_ms: float


class Delta(msgspec.Struct, frozen=True, tag="delta"):
    """New tokens of choice `index`, and the text that they made final (it may lag behind the tokens)."""

    index: int
    text: str
    tokens: list[int]
    logprobs: list[TokenLogprob] | None = None


class Finish(msgspec.Struct, frozen=True, tag="finish"):
    """Choice `index` has ended. reason: stop, length, abort or deadline; stop: the stop string that matched."""

    index: int
    reason: str
    completion_tokens: int
    stop: str | None = None


class Timings(msgspec.Struct, frozen=True):
    """Milliseconds: waiting for a slot, computing the prompt, generating."""

    queue_ms: float
    prefill_ms: float
    decode_ms: float


class Occupancy(msgspec.Struct, frozen=True):
    """What is queued and running in the engine: sequences, prompt tokens still to compute, blocks free."""

    waiting: int = 0
    running: int = 0
    queued_prefill_tokens: int = 0
    decode_sequences: int = 0
    free_blocks: int = 0


class End(msgspec.Struct, frozen=True, tag="end"):
    """The last frame of a request that ran. load: what the engine has left to do without it."""

    prompt_tokens: int
    completion_tokens: int
    timings: Timings
    load: Occupancy


class ErrorFrame(msgspec.Struct, frozen=True, tag="error"):
    """The last frame of a request that failed after its first frame."""

    code: str
    message: str


Frame = Start | Delta | Finish | End | ErrorFrame


class ModelInfo(msgspec.Struct, frozen=True):
    """GET /model: all that a gateway needs to render for this worker. draft_model: the name of its file, or none."""

    worker_id: str
    epoch: int
    name: str
    fingerprint: str
    architecture: str
    context_length: int
    block_size: int
    kv_dtype: str
    vocab_size: int
    tokenizer: str
    chat_template: str
    bos_id: int | None
    eos_id: int
    stop_ids: list[int]
    special_tokens: list[str]
    max_n: int
    draft_model: str = ""


class Load(msgspec.Struct, frozen=True):
    """GET /load: what placement needs. Rates are moving averages; 0 until the first measurement.

    host_tps, disk_tps   tokens a second that are loaded back from there
    """

    worker_id: str
    epoch: int
    state: str
    waiting: int
    running: int
    queued_prefill_tokens: int
    decode_sequences: int
    free_blocks: int
    total_blocks: int
    prefill_tps: float
    decode_step_ms: float
    step: int
    pub: str
    replay: str
    host_tps: float = 0.0
    disk_tps: float = 0.0


class WorkerError(Exception):
    """A request that is refused before its first frame: status, code, message, and the field at fault."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param

    def body(self) -> bytes:
        return msgspec.json.encode({"error": {"code": self.code, "message": self.message, "param": self.param}})
