"""A streaming chat client that takes times: as little as possible between the socket and the clock."""

import time
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

_TIMEOUT = aiohttp.ClientTimeout(total=600)


class RequestError(RuntimeError):
    """The gateway refused a request; `code` is the code of its error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.code = code


@dataclass(slots=True)
class Reply:
    """One streamed reply. Times in milliseconds from the moment of sending; predicted is the gateway's own forecast."""

    worker: str
    predicted: int
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    ttft_ms: float = 0.0
    total_ms: float = 0.0
    text: str = ""

    @property
    def decode_tps(self) -> float:
        """Tokens per second after the first; 0 when there was only one."""
        spent = self.total_ms - self.ttft_ms
        return (self.completion - 1) * 1000 / spent if self.completion > 1 and spent > 0 else 0.0


class ChatClient:
    """One tenant's connection to a gateway."""

    def __init__(self, url: str, key: str) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        self._session = aiohttp.ClientSession(url, headers=headers, timeout=_TIMEOUT, trust_env=False)

    async def __aenter__(self) -> "ChatClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def model(self) -> str:
        """The first model that the gateway offers."""
        async with self._session.get("/v1/models") as reply:
            return str((await reply.json())["data"][0]["id"])

    async def chat(self, **body: Any) -> Reply:
        """Streams one chat completion. RequestError when it is refused or breaks off with an error frame."""
        began = time.perf_counter()
        options = {"stream": True, "stream_options": {"include_usage": True}}
        async with self._session.post("/v1/chat/completions", json=body | options) as response:
            if response.status != 200:
                raise _error(response.status, await response.read())
            headers = response.headers
            reply = Reply(headers["x-saltway-worker"], int(headers["x-saltway-predicted-tokens"]))
            async for line in response.content:
                if line.startswith(b"data: {"):
                    _take(reply, msgspec.json.decode(line[6:]), began)
        reply.total_ms = (time.perf_counter() - began) * 1000
        return reply

    async def end(self, session: str) -> None:
        """Says that a session is over. RequestError when that is refused."""
        async with self._session.delete(f"/v1/sessions/{session}") as response:
            if response.status != 204:
                raise _error(response.status, await response.read())


def _take(reply: Reply, frame: dict[str, Any], began: float) -> None:
    if "error" in frame:
        raise RequestError(200, str(frame["error"].get("code")), str(frame["error"].get("message")))
    if usage := frame.get("usage"):
        reply.prompt, reply.completion = usage["prompt_tokens"], usage["completion_tokens"]
        reply.cached = usage["prompt_tokens_details"]["cached_tokens"]
    for choice in frame["choices"]:
        delta = choice["delta"]
        if not reply.ttft_ms and (delta.get("content") or delta.get("tool_calls")):
            reply.ttft_ms = (time.perf_counter() - began) * 1000
        reply.text += delta.get("content") or ""


def _error(status: int, body: bytes) -> RequestError:
    try:
        error = msgspec.json.decode(body)["error"]
        return RequestError(status, str(error.get("code")), str(error.get("message")))
    except (msgspec.DecodeError, KeyError, TypeError):
        return RequestError(status, "unknown", "not an error envelope")
