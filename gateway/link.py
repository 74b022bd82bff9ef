"""The gateway's tie to one worker address: heartbeats, membership in the fleet, and its event stream."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from structlog.typing import FilteringBoundLogger

from cacheplane.attribution import Departures
from cacheplane.fleet import Fleet
from cacheplane.index import PrefixIndex
from cacheplane.parity import Verdict
from cacheplane.placement import Placement
from cacheplane.report import LoadReport
from cacheplane.subscriber import CLEARED_AT_ONCE, Subscriber
from cacheplane.worker import Worker
from gateway.logs import get_logger, where
from gateway.worker_wire import Load, ModelInfo
from gateway.workers import TIMED_OUT, WorkerClient, WorkerFailedError

HEARTBEAT_SECONDS = 1.0
REFUSED = "refused"
WORKER_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")  # it goes into headers, metrics and logs
EVENTS_AT = "tcp://"  # ZeroMQ would open a file by ipc:// too
EVERYWHERE = ("*", "0.0.0.0", "[::]")  # noqa: S104 (never listened at here)
CUT_SECONDS = 30.0  # a worker that has been silent for so long is not coming back to the streams it holds
JOINING_SECONDS = 0.25  # an address that has not answered yet is tried more often, so that a start is quick


class WorkerLink:
    """One address. Whatever process answers there, with whatever epoch, is followed; an epoch change is a new worker.

    departures   in front of the index: what its events say goes through there
    placement    forgets a process that left; its parity guard has a word in whether the stream is believed
    prepare   called with what the worker serves before the fleet may choose it; raises ValueError for a model that
              cannot be rendered, which keeps the worker out and says so in `error`
    permits   shared by all links, so that not all of them fetch a snapshot at once
    """

    def __init__(
        self,
        client: WorkerClient,
        fleet: Fleet,
        index: PrefixIndex,
        departures: Departures,
        placement: Placement,
        prepare: Callable[[ModelInfo], Awaitable[None]],
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        permits: asyncio.Semaphore | None = None,
    ) -> None:
        self.client = client
        self.info: ModelInfo | None = None
        self.load: Load | None = None
        self.subscriber: Subscriber | None = None
        self.error: str | None = None
        self._fleet = fleet
        self._index = index
        self._departures = departures
        self._placement = placement
        self._verdict = Verdict.TRUSTED
        self._distrusted_at = 0
        self._prepare = prepare
        self._heartbeat_seconds = heartbeat_seconds
        self._permits = permits
        self._stream: asyncio.Task[None] | None = None
        self._log: FilteringBoundLogger = get_logger("link")

    @property
    def worker_id(self) -> str | None:
        """The id that the worker gives itself, once it has been met."""
        return None if self.info is None else self.info.worker_id

    @property
    def synced(self) -> bool:
        """The worker's blocks are in the index, so that placement knows what it holds."""
        return self.worker_id is not None and self._index.synced(self.worker_id)

    @property
    def pending(self) -> bool:
        """It may soon be synced: nothing was heard from the address yet, or a ready worker's snapshot is due."""
        if self.info is None or self.load is None:
            return self.error is None
        return self.load.state == "ready" and not self.synced

    async def run(self) -> None:
        """Follow the address until cancelled."""
        try:
            while True:
                await self._beat()
                await asyncio.sleep(self._pause)
        finally:
            await self._leave()

    @property
    def _pause(self) -> float:
        settled = self.synced or self.error == REFUSED
        return self._heartbeat_seconds if settled else min(JOINING_SECONDS, self._heartbeat_seconds)

    async def _beat(self) -> None:
        """One heartbeat: hear the worker, or note that it does not answer."""
        try:
            await self._hear()
        except WorkerFailedError as failure:
            self._missed(failure)
        except ValueError as refusal:
            self._refuse(refusal)
        except Exception as error:  # whatever it was, the next beat is a new chance
            self._log.error("heartbeat failed", url=self.client.url, error=type(error).__name__, where=where(error))

    async def _hear(self) -> None:
        """Meet the worker if it is new, and report its load."""
        load = await self.client.load()
        if self.info is None or load.epoch != self.info.epoch:
            await self._meet(load)
        self.load, self.error = load, None
        if self.worker_id is not None:
            self._fleet.observe(self.worker_id, _report(load), time.monotonic())
            self._keep_listening(self.worker_id)
            self._heed_parity(self.worker_id)

    def _keep_listening(self, worker_id: str) -> None:
        """A stream that a fault of ours has ended begins anew; else its worker would be unheard for good."""
        if self.subscriber is None or self._stream is None or not self._stream.done():
            return
        if (error := self._stream.exception()) is not None:
            self._log.error("event stream failed", worker=worker_id, error=type(error).__name__, where=where(error))
        self._stream = asyncio.create_task(self.subscriber.run(), name=f"events-{worker_id}")

    def _heed_parity(self, worker_id: str) -> None:
        """Wrong predictions may come of lost events: a suspended worker's snapshot is taken anew, and tried again."""
        parity, subscriber = self._placement.parity, self.subscriber
        record = parity.of(worker_id)
        if subscriber is not None and record.verdict is Verdict.SUSPENDED:
            if self._verdict is Verdict.TRUSTED:
                self._distrusted_at = subscriber.counters.snapshots
                subscriber.distrust()
            elif self.synced and subscriber.counters.snapshots > self._distrusted_at:
                parity.resynced(worker_id)
        if record.verdict is not self._verdict:
            self._verdict = record.verdict
            said = {"worker": worker_id, "verdict": record.verdict.value, "suspensions": record.suspensions}
            if record.verdict is Verdict.SUSPENDED:
                self._log.warning("predictions are wrong, left out of prefix scoring", **said)
            else:
                self._log.info("predictions are believed again", **said)

    async def _meet(self, load: Load) -> None:
        """A process that was not known: learn what it serves, then let the fleet and the index follow it."""
        info = await self.client.model()
        if info.epoch != load.epoch:
            raise WorkerFailedError("restarted")  # between the two questions; the next beat asks again
        await self._leave()
        if WORKER_ID.fullmatch(info.worker_id) is None:
            raise ValueError("its id is not 1 to 64 letters, digits, dots, dashes and underscores")
        if info.block_size & (info.block_size - 1):
            raise ValueError("its block size is not a power of two")
        if not load.pub.startswith(EVENTS_AT) or not load.replay.startswith(EVENTS_AT):
            raise ValueError(f"its events are not at {EVENTS_AT}")
        await self._prepare(info)
        if (other := self._fleet.get(info.worker_id)) is not None:
            raise ValueError(f"its id {info.worker_id} is taken by {other.url}")
        self._fleet.join(Worker(id=info.worker_id, url=self.client.url, model=info.name, fingerprint=info.fingerprint))
        pub, replay = (reached_at(address, self.client.url) for address in (load.pub, load.replay))
        self.subscriber = Subscriber(
            info.worker_id, pub, replay, self._departures, self.client.snapshot, permits=self._permits
        )
        self._stream = asyncio.create_task(self.subscriber.run(), name=f"events-{info.worker_id}")
        self.info = info
        self._log.info("worker joined", worker=info.worker_id, url=self.client.url, model=info.name, epoch=info.epoch)

    def _refuse(self, refusal: ValueError) -> None:
        if self.error != REFUSED:
            self._log.error("worker refused", url=self.client.url, reason=str(refusal))
        self.error = REFUSED

    def _missed(self, failure: WorkerFailedError) -> None:
        if self.error != failure.code:
            self._log.warning("worker does not answer", url=self.client.url, reason=failure.code)
        self.error = failure.code
        if self.worker_id is None:
            return
        now = time.monotonic()
        if failure.code != TIMED_OUT:  # slow is not dead: the fleet judges silence by its length
            self._fleet.unreachable(self.worker_id)
        worker = self._fleet.get(self.worker_id)
        if worker is not None and now - worker.seen_at > CUT_SECONDS:
            self.client.cut()

    async def _leave(self) -> None:
        """Forget the process that was here: its blocks are gone with it."""
        if self.info is None:
            return
        worker_id, self.info = self.info.worker_id, None
        self._fleet.unreachable(worker_id)
        if self._stream is not None:
            self._stream.cancel()
            await asyncio.gather(self._stream, return_exceptions=True)
        self._stream = self.subscriber = None
        # Its name is taken until nothing is known of it any more: another address may answer to it by then.
        while self._departures.drop(worker_id, CLEARED_AT_ONCE):  # noqa: ASYNC110  # a turn for others, no waiting
            await asyncio.sleep(0)
        self._fleet.leave(worker_id)
        self._placement.forget(worker_id)
        self._verdict = Verdict.TRUSTED


def reached_at(address: str, url: str) -> str:
    """Where a worker's socket is reached: one that listens everywhere is found where the worker itself is.

    address   tcp://HOST:PORT, as the worker says it
    url       of the worker
    """
    host, _, port = address.removeprefix(EVENTS_AT).rpartition(":")
    if host not in EVERYWHERE:
        return address
    found = urlsplit(url).hostname or host
    return f"{EVENTS_AT}[{found}]:{port}" if ":" in found else f"{EVENTS_AT}{found}:{port}"


def _report(load: Load) -> LoadReport:
    return LoadReport(
        epoch=load.epoch,
        state=load.state,
        waiting=load.waiting,
        running=load.running,
        queued_prefill_tokens=load.queued_prefill_tokens,
        decode_sequences=load.decode_sequences,
        free_blocks=load.free_blocks,
        total_blocks=load.total_blocks,
        prefill_tps=load.prefill_tps,
        decode_step_ms=load.decode_step_ms,
        host_tps=load.host_tps,
        disk_tps=load.disk_tps,
    )
