"""What a gateway sees of a worker: answers read to their end, and streams that it may leave."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from tests.worker.live import TOKEN
from tests.worker.rig import ACME, Reply
from worker.wire import Frame, Load

PROMPT = list(range(10, 60))
_FRAME = msgspec.json.Decoder(Frame)
_AUTHORISED = {"authorization": f"Bearer {TOKEN}"}


def body(**changes: Any) -> dict[str, Any]:
    """A greedy request for four tokens, with some fields changed."""
    sampling = {"max_tokens": 4, "temperature": 0, "ignore_eos": True} | changes.pop("sampling", {})
    request = {"request_id": "r", "tokens": PROMPT, "spans": [{"start": 0, "namespace": ACME.hex}], "tag": "t"}
    return request | {"sampling": sampling} | changes


def reply_of(lines: bytes) -> Reply:
    return Reply([_FRAME.decode(line) for line in lines.splitlines()])


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that was read to its end."""

    status: int
    kind: str
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def error(self) -> tuple[int, str, str | None]:
        """Status, code and param of a refusal."""
        error = self.json["error"]
        assert error["message"]
        return self.status, error["code"], error["param"]


class Client:
    """Talks to one worker with its token, unless other headers are given."""

    def __init__(self, url: str) -> None:
        self._session = aiohttp.ClientSession(url)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(self, method: str, path: str, *, headers: dict[str, str] | None = None, **sent: Any) -> Answer:
        async with self._session.request(
            method, path, headers=_AUTHORISED if headers is None else headers, **sent
        ) as got:
            return Answer(got.status, got.content_type, await got.read())

    async def get(self, path: str) -> Answer:
        return await self.ask("GET", path)

    async def post(self, path: str, json: dict[str, Any]) -> Answer:
        return await self.ask("POST", path, json=json)

    async def generate(self, **changes: Any) -> Reply:
        """A reply of the right form, read to its end."""
        answer = await self.post("/generate", body(**changes))
        assert (answer.status, answer.kind) == (200, "application/x-ndjson")
        reply = reply_of(answer.body)
        reply.check(changes.get("n", 1))
        return reply

    @asynccontextmanager
    async def stream(self, **changes: Any) -> AsyncIterator[aiohttp.StreamReader]:
        """A long reply whose first frame has come; leaving the block closes the connection."""
        changes["sampling"] = {"max_tokens": 4000}
        async with self._session.post("/generate", json=body(**changes), headers=_AUTHORISED) as response:
            assert b'"start"' in await response.content.readline()
            yield response.content
            response.close()

    async def load(self) -> Load:
        return msgspec.json.decode((await self.get("/load")).body, type=Load)

    async def until_idle(self) -> None:
        """Polls until no sequence runs or waits; a leak would make it poll until the test times out."""
        while True:
            load = await self.load()
            if not load.running and not load.waiting:
                return
            await asyncio.sleep(0.01)

    async def until_waiting(self) -> None:
        """Polls until a sequence waits for a slot."""
        while True:
            if (await self.load()).waiting:
                return
            await asyncio.sleep(0.01)

    async def metric(self, name: str) -> float:
        text = (await self.get("/metrics")).body.decode()
        (family,) = [family for family in text_string_to_metric_families(text) if family.name == name]
        return family.samples[0].value
