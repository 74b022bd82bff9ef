"""The HTTP client to workers: one session for the fleet, typed replies, frames line by line.

The worker's surface is declared in `gateway.worker_wire` and `gateway.frames`.
"""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import TracebackType
from typing import Self, TypeVar

import aiohttp
import msgspec

from cacheplane.wire import Snapshot, decode_snapshot
from gateway.frames import Frame
from gateway.worker_wire import GenerateRequest, Load, ModelInfo, ReleaseRequest, RetainRequest

CONNECT_SECONDS = 2.0
CONTROL_SECONDS = 3.0
KEEP_ALIVE_SECONDS = 20.0  # below the worker's own, so that no request meets a connection that is being closed
MODEL_SECONDS = 30.0
DRAIN_SECONDS = 1.0
LINE_BYTES = 1024 * 1024
CONTROL_BYTES = 1024 * 1024
MODEL_BYTES = 64 * 1024 * 1024
SNAPSHOT_BYTES = 256 * 1024 * 1024
_T = TypeVar("_T")
TIMED_OUT = "timeout"
MALFORMED = "malformed_stream"
MALFORMED_FRAME = "malformed_frame"
BUSY = frozenset({"overloaded", "starting", "draining"})


class Refusal(msgspec.Struct):
    code: str = "unknown"
    message: str = ""
    param: str | None = None


class _RefusalBody(msgspec.Struct):
    error: Refusal


class WorkerFailedError(Exception):
    """The worker cannot serve this now, another one may: refused connection, full queue, starting, broken stream."""

    def __init__(self, code: str, *, busy: bool = False) -> None:
        super().__init__(code)
        self.code = code
        self.busy = busy  # the process is well and says so itself; its health is not in doubt


class WorkerRefusedError(Exception):
    """The worker holds the request itself to be wrong; no other worker will take it."""

    def __init__(self, status: int, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.status = status
        self.refusal = refusal


class FrameStream:
    """Frames of one generation, as they come. Closing it before the end makes the worker abort."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._decoder = msgspec.json.Decoder(Frame)
        self._rest = b""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Frame]:
        """The frames of one piece that the network delivered; one or more, so that they can be passed on together.

        Raises WorkerFailedError when the stream breaks or a line is not a frame.
        """
        while chunk := await self._read():
            lines = (self._rest + chunk).split(b"\n")
            self._rest = lines.pop()
            if len(self._rest) > LINE_BYTES:
                raise WorkerFailedError("frame_too_long")
            frames = [self._decode(line) for line in lines if line]
            if frames:
                return frames
        if self._rest:
            raise WorkerFailedError("stream_cut")
        raise StopAsyncIteration

    async def drain(self) -> None:
        """Read the end of the body behind the last frame, so that the connection is kept and nothing looks aborted."""
        with suppress(TimeoutError, WorkerFailedError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while await self._read():
                    continue

    def close(self) -> None:
        self._response.close()

    async def _read(self) -> bytes:
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise WorkerFailedError("stream_cut") from error

    def _decode(self, line: bytes) -> Frame:
        try:
            return self._decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise WorkerFailedError(MALFORMED_FRAME) from error


class WorkerClient:
    """One worker's HTTP surface. Calls raise WorkerFailedError when the worker cannot be reached or understood.

    A redirect is a failure too: prompts and the token go to the address that the operator named, and nowhere else.
    """

    def __init__(self, session: "WorkerSession", url: str, token: str) -> None:
        self.url = url.rstrip("/")
        self._session = session
        self._headers = {"authorization": f"Bearer {token}"}
        self._streams: set[FrameStream] = set()
        self._openings: set[asyncio.Timeout] = set()

    async def model(self) -> ModelInfo:
        return _decoded(await self._get("/model", MODEL_SECONDS, MODEL_BYTES), ModelInfo)

    async def load(self) -> Load:
        return _decoded(await self._get("/load", CONTROL_SECONDS, CONTROL_BYTES), Load)

    async def snapshot(self) -> Snapshot:
        body = await self._get("/kv/snapshot", MODEL_SECONDS, SNAPSHOT_BYTES)
        try:
            return decode_snapshot(body)
        except ValueError as error:
            raise WorkerFailedError("malformed_snapshot") from error

    def generate(self, request: GenerateRequest) -> AbstractAsyncContextManager[FrameStream]:
        """A generation, begun on entering; leaving the context early closes the connection, which aborts it there.

        Entering raises WorkerFailedError (try elsewhere) or WorkerRefusedError (do not).
        """
        return self._generation(msgspec.json.encode(request))

    @asynccontextmanager
    async def _generation(self, body: bytes) -> AsyncIterator[FrameStream]:
        response = await self._opened(body)
        stream = FrameStream(response)
        self._streams.add(stream)
        try:
            if response.status != 200:
                raise await _failure(response)
            yield stream
        finally:
            self._streams.discard(stream)
            # A stream read to its end has already given its connection back; any other is cut here.
            response.close()

    async def _opened(self, body: bytes) -> aiohttp.ClientResponse:
        """The response, which comes with the first frame, however long the request is queued; `cut` ends the wait."""
        try:
            async with asyncio.timeout(None) as opening:
                self._openings.add(opening)
                try:
                    return await self._post("/generate", body)
                finally:
                    self._openings.discard(opening)
        except TimeoutError:
            raise WorkerFailedError("stream_cut") from None

    async def retain(self, request: RetainRequest) -> None:
        """Raises WorkerFailedError or WorkerRefusedError."""
        await self._tell("/retain", msgspec.json.encode(request))

    async def release(self, request: ReleaseRequest) -> None:
        """Raises WorkerFailedError or WorkerRefusedError."""
        await self._tell("/release", msgspec.json.encode(request))

    async def _tell(self, path: str, body: bytes) -> None:
        """A request whose answer says no more than that it was done."""
        try:
            async with asyncio.timeout(CONTROL_SECONDS):
                async with await self._post(path, body) as response:
                    if response.status != 200:
                        raise await _failure(response)
                    await _bounded(response, CONTROL_BYTES)
        except TimeoutError as error:
            raise WorkerFailedError(TIMED_OUT) from error
        except (aiohttp.ClientError, OSError) as error:
            raise WorkerFailedError("unreachable") from error

    def cut(self) -> None:
        """End every generation, begun or not: the worker has stopped answering, and waiting on it helps nobody."""
        while self._openings:
            self._openings.pop().reschedule(0.0)
        for stream in list(self._streams):
            stream.close()

    async def _post(self, path: str, body: bytes) -> aiohttp.ClientResponse:
        headers = {**self._headers, "content-type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
        try:
            # As a file, since aiohttp writes a long prompt in pieces then and lets the loop run between them.
            data = io.BytesIO(body)
            return await self._session.open.post(
                self.url + path, data=data, headers=headers, timeout=timeout, allow_redirects=False
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise WorkerFailedError("unreachable") from error

    async def _get(self, path: str, seconds: float, limit: int) -> bytearray:
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        try:
            async with self._session.open.get(
                self.url + path, headers=self._headers, timeout=timeout, allow_redirects=False
            ) as response:
                if response.status != 200:
                    raise await _failure(response)
                return await _bounded(response, limit)
        except WorkerRefusedError as error:
            raise WorkerFailedError(error.refusal.code) from error
        except TimeoutError as error:
            raise WorkerFailedError(TIMED_OUT) from error
        except (aiohttp.ClientError, OSError) as error:
            raise WorkerFailedError("unreachable") from error


class WorkerSession:
    """The shared aiohttp session, open while entered: kept-alive connections, no proxies, no cookies."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    def client(self, url: str) -> WorkerClient:
        return WorkerClient(self, url, self._token)

    @property
    def open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise WorkerFailedError("session_closed")
        return self._session

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


async def _bounded(response: aiohttp.ClientResponse, limit: int) -> bytearray:
    body = bytearray()  # it grows in place: to join the pieces of a large snapshot would keep every stream waiting
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > limit:
            raise WorkerFailedError("reply_too_long")
    return body


def _decoded(body: bytearray, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WorkerFailedError("malformed_reply") from error


async def _failure(response: aiohttp.ClientResponse) -> WorkerFailedError | WorkerRefusedError:
    """The typed error of a reply that is not 200."""
    try:
        async with asyncio.timeout(CONTROL_SECONDS):
            refusal = _decoded(await _bounded(response, CONTROL_BYTES), _RefusalBody).error
    except (WorkerFailedError, aiohttp.ClientError, OSError, TimeoutError):
        refusal = Refusal(code=f"http_{response.status}")
    if 400 <= response.status < 500 and response.status not in {401, 403, 404, 429}:
        return WorkerRefusedError(response.status, refusal)
    return WorkerFailedError(refusal.code, busy=refusal.code in BUSY)
