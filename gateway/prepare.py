"""From a body to a call that can be placed: parse, normalize, render, identify."""

import asyncio
import hashlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from cacheplane.attribution import Attribution, Origin, Sketch
from cacheplane.identity import TOKEN_BYTES, BlockChain, Namespace, Scope, derive_salt
from gateway.breakpoints import tokens_until
from gateway.chat.request import ChatRequest, parse_chat
from gateway.cluster import Cluster
from gateway.errors import BadRequestError, UnavailableError
from gateway.exchange import Exchange
from gateway.grammar import constraint_for
from gateway.lease import Lease, asked, by_policy, on_the_wire, wants_policy
from gateway.normalize import normalize
from gateway.render import Rendered
from gateway.schemas import SchemaGate
from gateway.served import ServedModel
from gateway.tags import tag_of
from gateway.toolwaits import ToolWaits
from gateway.worker_wire import Accepted, GenerateRequest, ModelInfo, Sampling, SpanWire
from tenants import PolicyStore, SaltStore, StoreUnavailableError

P = ParamSpec("P")
T = TypeVar("T")

# Above this a body is worked on in a thread: tokenizing half a megabyte would hold up every other stream.
INLINE_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class Call:
    """Everything that dispatch needs; nothing in it depends on which worker is chosen.

    lease     that is taken when it ends
    session   of the lease that holds this conversation while the tools ran whose results this is; "" where none did
    """

    request: ChatRequest
    served: ServedModel
    tokens: "array[int]"
    namespace: Namespace
    chain: BlockChain
    sketch: Sketch
    tag: str
    max_tokens: int
    grammar: str | None
    lease: Lease | None
    session: str

    def for_worker(self, request_id: str, deadline_ms: int, accepted: Sequence[Accepted] = ()) -> GenerateRequest:
        """accepted: for each choice what another worker has generated of it before it failed, if one has."""
        sampling = sampling_of(self.request, self.max_tokens)
        if sampling.seed is None:
            sampling.seed = _seed_of(request_id)
        return GenerateRequest(
            request_id=request_id,
            tokens=self.tokens.tolist(),
            spans=[SpanWire(0, self.namespace.hex)],
            tag=self.tag,
            n=self.request.n,
            sampling=sampling,
            grammar=self.grammar,
            deadline_ms=deadline_ms,
            store=self.request.cache.store,
            retention=on_the_wire(self.lease, self.session),
            accepted=list(accepted),
        )


def _seed_of(request_id: str) -> int:
    """The same at every attempt, so that a worker that goes on for another draws what that one would have drawn."""
    return int.from_bytes(hashlib.blake2b(request_id.encode(), digest_size=8).digest()) >> 1


def sampling_of(request: ChatRequest, max_tokens: int) -> Sampling:
    """Sampling fields never touch the rendered prompt, so changing them costs no reuse."""
    return Sampling(
        max_tokens=max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        seed=request.seed,
        stop=list(request.stop),
        logprobs=request.top_logprobs if request.logprobs else None,
        frequency_penalty=request.frequency_penalty,
        presence_penalty=request.presence_penalty,
        logit_bias=request.logit_bias,
        top_k=request.top_k,
        min_p=request.min_p,
        repetition_penalty=request.repetition_penalty,
        min_tokens=request.min_tokens,
        ignore_eos=request.ignore_eos,
        stop_ids=list(request.stop_token_ids),
    )


class Preparation:
    """Holds the master secret: salts are derived here and go no further than into namespaces.

    completion_tokens   what a request may generate when it does not say, so that a forgotten limit does not run to
                        the end of a long context
    """

    def __init__(
        self,
        cluster: Cluster,
        salts: SaltStore,
        policies: PolicyStore,
        attribution: Attribution,
        waits: ToolWaits,
        secret: bytes,
        completion_tokens: int,
    ) -> None:
        self._cluster = cluster
        self._waits = waits
        self._attribution = attribution
        self._salts = salts
        self._policies = policies
        self._secret = secret
        self._completion_tokens = completion_tokens
        self._schemas = SchemaGate()

    async def prepare(self, exchange: Exchange, body: bytes) -> Call:
        """Raises ApiError naming the field that is wrong; fills in the exchange's model and prompt length."""
        request = await _run(len(body), _read, body)
        exchange.streamed = request.stream
        served = self._cluster.model(request.model)
        exchange.model = served.name
        _expect_possible(request, served.info)
        origin = await self._origin(exchange.tenant_id, served, request)
        namespace = self._namespace(origin, served, request.cache.namespace)
        grammar = await self._constraint(request, exchange.tenant_id)
        rendered, chain, sketch = await _run(len(body), self._identify, request, served, namespace, origin)
        tokens = rendered.tokens
        exchange.prompt_tokens = len(tokens)
        exchange.template = sketch.template
        session = self._waits.answered(exchange.tenant_id, request.answered_calls)
        return Call(
            request=request,
            served=served,
            tokens=tokens,
            namespace=namespace,
            chain=chain,
            sketch=sketch,
            tag=tag_of(self._secret, exchange.tenant_id),
            max_tokens=self._room(request, len(tokens), served.info.context_length),
            grammar=grammar,
            lease=await self._lease(exchange, request, served, rendered, session),
            session=session,
        )

    async def _origin(self, tenant_id: str, served: ServedModel, request: ChatRequest) -> Origin:
        try:
            epoch = await self._salts.current(str(Scope("tenant", tenant_id)))
        except StoreUnavailableError:
            message = "Cache isolation cannot be established at the moment; try again."
            raise UnavailableError(message, code="store_unavailable", headers={"retry-after": "1"}) from None
        space = (served.fingerprint, served.info.kv_dtype, request.cache.namespace)
        return Origin(tenant_id, served.name, space, epoch, request.cache.store)

    def _namespace(self, origin: Origin, served: ServedModel, sub: str) -> Namespace:
        salt = derive_salt(self._secret, Scope("tenant", origin.tenant), origin.epoch)
        return Namespace.derive(salt=salt, model=served.fingerprint, kv_dtype=served.info.kv_dtype, sub=sub)

    async def _constraint(self, request: ChatRequest, tenant_id: str) -> str | None:
        """The reply's grammar; schemas are worked on in a thread and remembered for their tenant alone."""
        if not request.tools and request.response_format.type == "text":
            return None
        return await asyncio.to_thread(constraint_for, request, self._schemas, partition=tenant_id)

    def _identify(
        self, request: ChatRequest, served: ServedModel, namespace: Namespace, origin: Origin
    ) -> tuple[Rendered, BlockChain, Sketch]:
        context = served.info.context_length
        rendered = served.renderer.render(request.messages, request.tools, partition=origin.tenant, most=context)
        block_size = served.info.block_size
        sketch = self._attribution.sketch(origin, rendered.tokens, block_size, rendered.segments)
        return rendered, BlockChain.of(rendered.tokens, namespace, block_size), sketch

    async def _lease(
        self, exchange: Exchange, request: ChatRequest, served: ServedModel, rendered: Rendered, session: str
    ) -> Lease | None:
        """What the client asks for; where it says nothing, what the operator has set."""
        if not wants_policy(request.cache):
            spec, tokens, kept = request.cache.retention, rendered.tokens, None
            if spec is not None and spec.until is not None:
                arguments = spec.until, request, tokens, served.renderer, exchange.tenant_id
                kept = await _run(TOKEN_BYTES * len(tokens), tokens_until, *arguments)
            return asked(request.cache, session, kept)
        policy = await self._policies.current(exchange.tenant_id)
        if policy is None:
            return None
        return by_policy(policy, session or exchange.id, rendered.system_tokens, exchange.template)

    def _room(self, request: ChatRequest, prompt_tokens: int, context_length: int) -> int:
        """Completion tokens: what was asked or the default, clipped to what the context has left."""
        left = context_length - prompt_tokens
        if left < 1:
            message = (
                f"This model's context is {context_length} tokens; the rendered messages and tools take "
                f"{prompt_tokens}, which leaves no room for an answer."
            )
            raise BadRequestError(message, param="messages", code="context_length_exceeded")
        return min(left, self._completion_tokens if request.max_tokens is None else request.max_tokens)


def _expect_possible(request: ChatRequest, info: ModelInfo) -> None:
    """What the model alone can say of a field. Raises BadRequestError naming it."""
    if request.n > info.max_n:
        raise BadRequestError(f"Must be between 1 and {info.max_n}.", param="n", code="out_of_range")
    named = [(int(token), f"logit_bias.{token}") for token in request.logit_bias]
    named += [(token, f"stop_token_ids[{index}]") for index, token in enumerate(request.stop_token_ids)]
    for token, param in named:
        if token >= info.vocab_size:
            raise BadRequestError(f"Token ids end at {info.vocab_size - 1}.", param=param, code="out_of_range")


def _read(body: bytes) -> ChatRequest:
    return normalize(parse_chat(body))


async def _run(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Here when it is quick, in a thread when it is not."""
    if size <= INLINE_BYTES:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
