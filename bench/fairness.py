"""What one tenant's burst does to another's first token: paced short requests, alone and beside long prompts.

    python -m bench.fairness [--requests 40] [--interval 5] [--streams 12] [--json]

One worker. Tenant globex sends a short request every `interval` seconds, whether the last one has been answered or
not; tenant acme keeps `streams` long requests open, more than the worker has slots. No prompt begins like another, so
nothing is served from cache. Times are to the first token at the client, in milliseconds; `ratio` is
p99_ttft_burst_ms / p99_ttft_quiet_ms, and of `requests` < 100 the 99th percentile is the slowest one.
"""

import argparse
import asyncio
import math
import random
import sys
import time
from contextlib import suppress
from statistics import median
from typing import Any

from bench.client import ChatClient, Reply
from bench.report import machine, publish, say, table
from bench.stack import Stack

_WORDS = ("salt", "road", "cart", "horse", "market", "tally", "barrel", "ledger", "bridge", "toll", "harbour", "anvil")
_LEAD_SECONDS = 8.0  # until the burst holds every slot


def main() -> int:
    flags = _flags()
    figures = asyncio.run(_measure(flags))
    publish("fairness", figures, _as_table(figures), as_json=flags.json)
    return 0


async def _measure(flags: argparse.Namespace) -> dict[str, Any]:
    options = {name: value for name, value in vars(flags).items() if name != "json"}
    conditions = {"machine": machine(), **options, "workers": 1}
    with Stack(workers=1) as stack:
        async with (
            ChatClient(stack.url, stack.keys["SALTWAY_KEY_GLOBEX"]) as globex,
            ChatClient(stack.url, stack.keys["SALTWAY_KEY_ACME"]) as acme,
        ):
            model = await globex.model()
            await _paced(globex, model, flags, count=3)
            say("globex alone")
            quiet = await _paced(globex, model, flags, count=flags.requests)
            say(f"globex beside {flags.streams} long requests of acme at a time")
            burst, long, seconds = await _beside_burst(globex, acme, model, flags)
    return figures_of(quiet, burst, long, seconds) | {"conditions": conditions}


async def _paced(client: ChatClient, model: str, flags: argparse.Namespace, count: int) -> list[Reply]:
    """Short requests at fixed times, whatever becomes of the ones before."""
    sent = []
    for _ in range(count):
        sent.append(asyncio.create_task(_ask(client, model, flags.short, flags.reply)))
        await asyncio.sleep(flags.interval)
    return await asyncio.gather(*sent)


async def _beside_burst(
    globex: ChatClient, acme: ChatClient, model: str, flags: argparse.Namespace
) -> tuple[list[Reply], list[Reply], float]:
    """globex's replies, acme's that ended meanwhile, and how long it took, in seconds."""
    long: list[Reply] = []

    async def stream() -> None:
        while True:
            long.append(await _ask(acme, model, flags.long, flags.long_reply))

    streams = [asyncio.create_task(stream()) for _ in range(flags.streams)]
    await asyncio.sleep(_LEAD_SECONDS)
    long.clear()  # what ended before the clock starts is not counted
    began = time.perf_counter()
    burst = await _paced(globex, model, flags, count=flags.requests)
    seconds = time.perf_counter() - began
    for task in streams:
        if task.done():
            task.result()  # a burst that broke off measures nothing
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    return burst, long, seconds


async def _ask(client: ChatClient, model: str, words: int, max_tokens: int) -> Reply:
    """A prompt that begins like no other; a word is a token, or a little more."""
    text = f"{random.getrandbits(64):x} " + " ".join(random.choices(_WORDS, k=words))
    messages = [{"role": "user", "content": f"{text}. Tell a long story about all this."}]
    return await client.chat(model=model, messages=messages, max_tokens=max_tokens, temperature=0)


def figures_of(quiet: list[Reply], burst: list[Reply], long: list[Reply], seconds: float) -> dict[str, Any]:
    alone, beside = [_ttft(reply) for reply in quiet], [_ttft(reply) for reply in burst]
    return {
        "p99_ttft_quiet_ms": round(p99(alone), 1),
        "p99_ttft_burst_ms": round(p99(beside), 1),
        "ratio": round(p99(beside) / p99(alone), 3),
        "p50_ttft_quiet_ms": round(median(alone), 1),
        "p50_ttft_burst_ms": round(median(beside), 1),
        "ratio_p50": round(median(beside) / median(alone), 3),
        "short_prompt_tokens": round(median(reply.prompt for reply in quiet)),
        "long_requests": len(long),
        "long_prompt_tokens": round(median(reply.prompt for reply in long)) if long else 0,
        "long_tokens_per_s": round(sum(reply.prompt + reply.completion for reply in long) / seconds, 1),
    }


def _ttft(reply: Reply) -> float:
    """A reply without any text has its end for a first token."""
    return reply.ttft_ms or reply.total_ms


def p99(values: list[float]) -> float:
    """Nearest rank."""
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def _as_table(figures: dict[str, Any]) -> str:
    rows = [
        [name, *(figures[f"{quantile}_ttft_{kind}_ms"] for kind in ("quiet", "burst")), figures[ratio]]
        for name, quantile, ratio in (("TTFT p50, ms", "p50", "ratio_p50"), ("TTFT p99, ms", "p99", "ratio"))
    ]
    shown = table(["globex", "alone", "beside acme's burst", "ratio"], rows)
    return f"{shown}\nacme meanwhile: {figures['long_requests']} long requests, {figures['long_tokens_per_s']} tokens/s"


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.fairness", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--requests", type=int, default=40, help="short requests in each part")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between two of them")
    parser.add_argument("--short", type=int, default=120, help="words of a short prompt")
    parser.add_argument("--reply", type=int, default=4, help="tokens of its reply")
    parser.add_argument("--streams", type=int, default=12, help="long requests at a time")
    parser.add_argument("--long", type=int, default=1200, help="words of a long prompt")
    parser.add_argument("--long-reply", type=int, default=48, help="tokens of its reply")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
