"""Engines side by side: our worker over its own HTTP, servers that speak OpenAI's completions, and transformers.

Each answers `generate` with the moments at which tokens came, so that one clock, ours, times all of them.
"""

import asyncio
import json
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp
import torch
from tokenizers import Tokenizer
from torch import Tensor

from gateway.up.ports import free_ports
from worker.weights import Weights
from worker.weights.inventory import expected

_TIMEOUT = aiohttp.ClientTimeout(total=1200)
_START_SECONDS = 240
Choosing = Mapping[str, float]  # how tokens are chosen, by the names that all of them have
GREEDY: Final[Choosing] = {"temperature": 0}
SAMPLED: Final[Choosing] = {"temperature": 0.8, "top_p": 0.95, "seed": 1}


@dataclass(slots=True)
class Timed:
    """One reply: when it was asked for, and when each of its tokens came, in seconds of one clock."""

    began: float
    at: list[float] = field(default_factory=list)
    text: str = ""

    @property
    def ttft(self) -> float:
        return self.at[0] - self.began

    @property
    def seconds(self) -> float:
        return self.at[-1] - self.began


class Peer(Protocol):
    """An engine with the model of the benchmark."""

    async def generate(
        self, prompt: list[int], tokens: int, schema: dict[str, Any] | None = None, chosen: Choosing = GREEDY
    ) -> Timed:
        """A reply: exactly `tokens` long, or JSON of the schema of at most as many."""

    async def together(self, prompts: list[list[int]], tokens: int) -> list[Timed]:
        """Replies to prompts of one length, asked for at once."""


class Worker:
    """Our worker, reached at a URL."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def generate(
        self, prompt: list[int], tokens: int, schema: dict[str, Any] | None = None, chosen: Choosing = GREEDY
    ) -> Timed:
        sampling = {"max_tokens": tokens, "ignore_eos": schema is None, **chosen}
        body: dict[str, Any] = {"request_id": secrets.token_hex(8), "tokens": prompt, "sampling": sampling}
        body["spans"] = [{"start": 0, "namespace": "0" * 64}]
        if schema is not None:
            body["grammar"] = f"%llguidance {{}}\nstart: %json {json.dumps(schema)}"
        timed = Timed(time.perf_counter())
        async with self._session.post("/generate", json=body) as response:
            response.raise_for_status()
            async for line in response.content:
                frame = json.loads(line)
                if frame["type"] == "delta":
                    timed.at += [time.perf_counter()] * len(frame["tokens"])
                    timed.text += frame["text"]
        return timed

    async def together(self, prompts: list[list[int]], tokens: int) -> list[Timed]:
        return list(await asyncio.gather(*(self.generate(prompt, tokens) for prompt in prompts)))


class OpenAIServer:
    """A server with `/v1/completions`: vLLM's, or llama.cpp's llama-server."""

    def __init__(self, session: aiohttp.ClientSession, tokenizer: Tokenizer, model: str) -> None:
        self._session = session
        self._tokenizer = tokenizer
        self._model = model

    async def generate(
        self, prompt: list[int], tokens: int, schema: dict[str, Any] | None = None, chosen: Choosing = GREEDY
    ) -> Timed:
        text = self._tokenizer.decode(prompt, skip_special_tokens=False)
        body: dict[str, Any] = {"model": self._model, "prompt": text, "max_tokens": tokens, **chosen}
        body |= {"stream": True, "cache_prompt": True}
        if schema is None:
            body["ignore_eos"] = True
        else:
            body |= {"json_schema": schema, "structured_outputs": {"json": schema}}  # llama.cpp's name, and vLLM's
        timed = Timed(time.perf_counter())
        async with self._session.post("/v1/completions", json=body) as response:
            response.raise_for_status()
            async for line in response.content:
                if line.startswith(b"data: {") and (choices := json.loads(line[6:]).get("choices")):
                    timed.text += choices[0]["text"]
                    if choices[0]["text"] or not choices[0].get("finish_reason"):
                        timed.at.append(time.perf_counter())
        return timed

    async def together(self, prompts: list[list[int]], tokens: int) -> list[Timed]:
        return list(await asyncio.gather(*(self.generate(prompt, tokens) for prompt in prompts)))


class Transformers:
    """`generate` of transformers in this process, in float32: batch by batch, no cache between requests, no grammar.

    Imported here only: it takes seconds, and is wanted for this peer alone.
    """

    def __init__(self, weights: Weights, threads: int) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM, StoppingCriteriaList

        torch.set_num_threads(threads)
        config = weights.config
        base = config.rope.frequencies[1] ** (-config.head_dim / 2)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=config.vocabulary,
                hidden_size=config.width,
                intermediate_size=config.feed_forward,
                num_hidden_layers=config.layers,
                num_attention_heads=config.heads,
                num_key_value_heads=config.kv_heads,
                head_dim=config.head_dim,
                max_position_embeddings=config.context,
                rms_norm_eps=config.epsilon,
                rope_parameters={"rope_type": "default", "rope_theta": base},
                tie_word_embeddings=config.tied,
            )
        )
        model.load_state_dict({name: weights.tensor(name) for name in expected(config)}, strict=not config.tied)
        self._model = model
        self._lock = asyncio.Lock()
        self._criteria = StoppingCriteriaList

    async def generate(
        self, prompt: list[int], tokens: int, schema: dict[str, Any] | None = None, chosen: Choosing = GREEDY
    ) -> Timed:
        assert schema is None, "transformers has no grammars"
        assert chosen is GREEDY
        return (await self.together([prompt], tokens))[0]

    async def together(self, prompts: list[list[int]], tokens: int) -> list[Timed]:
        timed = Timed(time.perf_counter())
        async with self._lock:
            await asyncio.to_thread(self._run, torch.tensor(prompts), tokens, timed)
        return [timed] * len(prompts)

    @torch.inference_mode()
    def _run(self, ids: Tensor, tokens: int, timed: Timed) -> None:
        def note(so_far: Tensor, _scores: object) -> Tensor:
            timed.at.append(time.perf_counter())
            return torch.zeros(len(so_far), dtype=torch.bool)

        self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            stopping_criteria=self._criteria([note]),
        )


@asynccontextmanager
async def own_worker(model: Path, threads: int, slots: int, *flags: str) -> AsyncIterator[Worker]:
    """A worker process of our own, until the block ends."""
    with tempfile.TemporaryDirectory() as folder:
        token, (port,) = secrets.token_hex(16), free_ports(1)
        (Path(folder) / "token").write_text(token)
        command = [sys.executable, "-m", "worker", "--port", str(port), "--token-file", f"{folder}/token"]
        command += ["--model", str(model), "--threads", str(threads), "--slots", str(slots), *flags]
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        headers = {"Authorization": f"Bearer {token}"}
        url = f"http://127.0.0.1:{port}"
        try:
            async with _session(url, headers=headers) as session:
                await _ready(session, process)
                yield Worker(session)
        finally:
            process.terminate()
            await process.wait()


def _session(url: str, headers: dict[str, str] | None = None) -> aiohttp.ClientSession:
    """A connection for each request: while the others have their turn, a server closes those that idle."""
    connector = aiohttp.TCPConnector(force_close=True)
    return aiohttp.ClientSession(url, headers=headers, timeout=_TIMEOUT, trust_env=False, connector=connector)


async def _ready(session: aiohttp.ClientSession, process: asyncio.subprocess.Process) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.returncode is None:
        try:
            async with session.get("/ready") as reply:
                if reply.status == 200:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.2)
    raise RuntimeError("the worker did not become ready")


@asynccontextmanager
async def openai_server(url: str, tokenizer: Tokenizer) -> AsyncIterator[OpenAIServer]:
    """A server that runs already; its first model is asked."""
    async with _session(url) as session:
        async with session.get("/v1/models") as reply:
            model = (await reply.json())["data"][0]["id"]
        yield OpenAIServer(session, tokenizer, model)
