"""Placing a call and seeing it through: when a worker fails, another one begins it again or goes on with it."""

import asyncio
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from cacheplane.attribution import Attribution, Outlook
from cacheplane.placement import Decision, NoWorkerError, Placement
from gateway.chat.request import ChatRequest
from gateway.cluster import Cluster
from gateway.errors import ApiError, UnavailableError, from_worker, is_of_the_request
from gateway.exchange import Exchange
from gateway.frames import DeltaFrame, EndFrame, ErrorFrame, FinishFrame, Frame, StartFrame
from gateway.logs import get_logger
from gateway.prepare import Call
from gateway.progress import Progress
from gateway.workers import MALFORMED, MALFORMED_FRAME, FrameStream, WorkerFailedError, WorkerRefusedError

MAX_ATTEMPTS = 3
GRACE_SECONDS = 2.0  # the worker ends a generation at its deadline itself; this is for one that does not
RETRY = {"retry-after": "1"}


class Relay(Protocol):
    """Where the frames of a generation go, in the form that the client asked for."""

    @property
    def started(self) -> bool:
        """The client has been sent something, so this answer cannot be begun again; it can be gone on with."""

    def begin(self) -> None:
        """A new answer: forget what an earlier attempt has brought."""

    async def pass_on(self, frames: list[Frame]) -> None:
        """Frames as they came, the end frame among them."""

    async def complete(self) -> None:
        """The worker is done; send what is left."""

    async def break_off(self, error: ApiError) -> None:
        """End an answer that has begun with a typed error."""


class Dispatcher:
    """Runs calls on workers. `deadline_ms` counts from a request's arrival to its last token."""

    def __init__(self, cluster: Cluster, placement: Placement, attribution: Attribution, deadline_ms: int) -> None:
        self._cluster = cluster
        self._placement = placement
        self._attribution = attribution
        self._deadline_ms = deadline_ms
        self._log: FilteringBoundLogger = get_logger("dispatch")

    async def run(self, call: Call, exchange: Exchange, relay: Relay) -> None:
        """Until the client has its answer. Raises ApiError when it has been sent nothing."""
        try:
            await self._run(call, exchange, relay)
        except ApiError as error:
            if not relay.started:
                raise
            exchange.fail(error.status, error.code)
            await relay.break_off(error)

    async def _run(self, call: Call, exchange: Exchange, relay: Relay) -> None:
        left = (self._deadline_ms - exchange.watch.total_ms) / 1000.0 + GRACE_SECONDS
        try:
            async with asyncio.timeout(left):
                await self._attempts(call, exchange, relay)
        except TimeoutError:
            message = f"The answer was not complete within {self._deadline_ms} ms."
            no_retry = {"x-should-retry": "false"}
            raise ApiError(504, message, type="server_error", code="deadline_exceeded", headers=no_retry) from None

    async def _attempts(self, call: Call, exchange: Exchange, relay: Relay) -> None:
        tried: set[str] = set()
        failure = WorkerFailedError("none")
        progress = Progress(call.request.n)
        while len(tried) < MAX_ATTEMPTS:
            try:
                decision = self._placement.decide(call.served.name, call.chain, len(call.tokens), tried)
            except NoWorkerError:
                break
            tried.add(decision.worker.id)
            if progress.begun:
                exchange.resume(decision, progress.completion_tokens)
            else:
                exchange.placed(decision)
                relay.begin()
            try:
                return await self._attempt(call, exchange, relay, decision, progress)
            except WorkerFailedError as failed:
                failure = failed
                self._note(exchange, decision, failure)
            if failure.code == MALFORMED:
                progress = Progress(call.request.n)
        raise _given_up(failure, tried)

    async def _attempt(
        self, call: Call, exchange: Exchange, relay: Relay, decision: Decision, progress: Progress
    ) -> None:
        """One worker's try. Raises WorkerFailedError when another may do better, ApiError when none can."""
        attempt = _Attempt(call, exchange, decision, progress, self._cluster, self._placement, self._attribution)
        try:
            client = self._cluster.client(decision.worker.id)
            if client is None or decision.worker.fingerprint != call.served.fingerprint:
                raise WorkerFailedError("replaced", busy=True)
            deadline_ms = max(1, int(self._deadline_ms - exchange.watch.total_ms))
            opening = client.generate(call.for_worker(exchange.id, deadline_ms, progress.accepted))
            exchange.watch.pause()
            async with opening as stream:
                await attempt.follow(stream, relay)
        except WorkerRefusedError as refused:
            refusal = refused.refusal
            raise from_worker(refusal.code, refusal.message, _field(call.request, refusal.param)) from None
        finally:
            exchange.watch.resume()
            self._placement.finished(decision, attempt.delivered)
            self._attribution.finished(call.sketch, served=attempt.prefilled)

    def _note(self, exchange: Exchange, decision: Decision, failure: WorkerFailedError) -> None:
        self._log.warning("worker failed", request_id=exchange.id, worker=decision.worker.id, reason=failure.code)
        if not failure.busy:
            self._cluster.failed(decision.worker.id)


class _Attempt:
    """What one worker has told of one generation.

    delivered   prompt tokens that it served from its cache, None until it has said so
    prefilled   whether the whole prompt has been computed
    """

    def __init__(
        self,
        call: Call,
        exchange: Exchange,
        decision: Decision,
        progress: Progress,
        cluster: Cluster,
        placement: Placement,
        attribution: Attribution,
    ) -> None:
        self.delivered: int | None = None
        self.prefilled = False
        self._call = call
        self._progress = progress
        self._exchange = exchange
        self._decision = decision
        self._cluster = cluster
        self._placement = placement
        self._attribution = attribution
        self._outlook = self._look(decision)
        self._ended = False

    def _look(self, decision: Decision) -> Outlook:
        """What was known of the prompt's blocks at the decision: by the first frame it may be something else."""
        predicted, available = decision.predicted_tokens, decision.available_tokens
        if self._progress.begun:  # the worker that failed had computed all of the prompt, whatever its events told
            return Outlook(predicted, available, stranded=self._call.chain.tokens)
        return self._attribution.outlook(self._call.served.name, self._call.chain, predicted, available)

    async def follow(self, stream: FrameStream, relay: Relay) -> None:
        held: list[Frame] = []
        async for piece in stream:
            self._exchange.watch.resume()
            frames, held = _together([*held, *piece])
            for frame in frames:
                self._read(frame)
            if frames:
                await relay.pass_on(frames)
            self._progress.take(frames)
            if self._ended:
                await stream.drain()
                self._exchange.replies = self._progress.replies
                return await relay.complete()
            self._exchange.watch.pause()
        raise WorkerFailedError("stream_cut")

    def _read(self, frame: Frame) -> None:
        exchange = self._exchange
        if self.delivered is None and not isinstance(frame, StartFrame | ErrorFrame):
            raise WorkerFailedError(MALFORMED_FRAME)
        match frame:
            case StartFrame():
                self._start(frame)
            case DeltaFrame():
                self._first_token()
                exchange.completion_tokens += len(frame.tokens)
            case FinishFrame():
                exchange.finish_reason = frame.reason
            case EndFrame():
                self._expect_prompt(frame.prompt_tokens)
                exchange.completion_tokens = frame.completion_tokens
                self._ended = True
                if frame.load is not None:
                    self._cluster.refresh(self._decision.worker.id, frame.load)
            case ErrorFrame() if is_of_the_request(frame.code):
                raise from_worker(frame.code, frame.message)
            case ErrorFrame():
                raise WorkerFailedError(frame.code)

    def _start(self, frame: StartFrame) -> None:
        self._expect_prompt(frame.prompt_tokens, frame.cached.total)
        exchange = self._exchange
        self.delivered = exchange.cached_tokens = frame.cached.total
        exchange.misses = self._attribution.attribute(
            self._call.sketch, self._call.chain, self._outlook, frame.cached.total
        )
        exchange.queue_ms = frame.queue_ms
        exchange.state = "prefill"

    def _expect_prompt(self, tokens: int, cached: int = 0) -> None:
        """The worker speaks of the prompt that it was sent, or else no sum over its tokens would hold."""
        if tokens != len(self._call.tokens) or cached > tokens:
            raise WorkerFailedError(MALFORMED_FRAME)

    def _first_token(self) -> None:
        if not self.prefilled:
            self.prefilled = True
            self._exchange.first_token()
            self._placement.first_token(self._decision)


def _field(request: ChatRequest, param: str | None) -> str | None:
    """What a worker's field was made of, by the name that the client knows."""
    if param == "grammar":
        return request.response_format.at
    return "messages" if param == "tokens" else param and param.removeprefix("sampling.")


def _together(frames: list[Frame]) -> tuple[list[Frame], list[Frame]]:
    """What can be passed on, and what waits: text without tokens is the rest of a choice and goes with its finish. A
    worker that took over between the two would say that rest again."""
    last = frames[-1]
    waits = isinstance(last, DeltaFrame) and not last.tokens
    return (frames[:-1], frames[-1:]) if waits else (frames, [])


def _given_up(failure: WorkerFailedError, tried: set[str]) -> ApiError:
    """What to tell the client when no worker is left to try."""
    if not tried:
        return UnavailableError(
            "No worker is ready for this model; try again shortly.", code="no_worker", headers=RETRY
        )
    return from_worker(failure.code, "")
