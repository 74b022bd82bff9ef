"""N agent sessions of M turns: TTFT and tokens/s cold and warm, with and without prefix-aware placement.

    python -m bench.sessions [--sessions FILE] [--count 10] [--turns 6] [--concurrency 2] [--json]
    python -m bench.sessions --url http://127.0.0.1:8080 --key KEY       against a stack that runs already

A session's first turn is cold. From turn 2 on, `cached_ratio` is the share of the full blocks of the previous turn's
prompt that the worker reported as cached; `predicted_minus_delivered` is the mean of the gateway's forecast less that
report, in tokens. Times are medians.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from bench.agents import Session, made_up, recorded
from bench.client import ChatClient, Reply, RequestError
from bench.report import machine, publish, say, table
from bench.stack import Stack

_BLOCK = 16
_CHARACTERS_PER_TOKEN = 2.6  # of tool JSON and prose together, on the low side; only to pass over sessions early


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a session, with the prompt length of the one before it."""

    session: str
    number: int
    previous_prompt: int
    reply: Reply

    @property
    def cached_ratio(self) -> float:
        full = self.previous_prompt // _BLOCK * _BLOCK
        return min(1.0, self.reply.cached / full) if full else 1.0


def main() -> int:
    flags = _flags()
    figures = asyncio.run(_measure(flags))
    publish("sessions", figures, _as_table(figures), as_json=flags.json)
    return 0


async def _measure(flags: argparse.Namespace) -> dict[str, Any]:
    conditions = {"machine": machine(), "sessions": str(flags.sessions or "made up"), "count": flags.count}
    conditions |= {"concurrency": flags.concurrency, "max_tokens": flags.max_tokens, "workers": flags.workers}
    if flags.url:
        return await replay(flags.url, flags.key, flags) | {"conditions": conditions}
    results: dict[str, Any] = {}
    for placement in ("cost", "load-only"):
        say(f"starting a stack with placement {placement}")
        with Stack(workers=flags.workers, placement=placement) as stack:
            results[placement] = await replay(stack.url, stack.keys["SALTWAY_KEY_ACME"], flags)
    return {**results["cost"], "without_placement": results["load-only"], "conditions": conditions}


async def replay(url: str, key: str, flags: argparse.Namespace) -> dict[str, Any]:
    """Plays the sessions, `concurrency` at a time, and sums up."""
    turns: list[Turn] = []
    skipped: list[str] = []
    waiting = _sessions(flags)
    began = time.perf_counter()
    async with ChatClient(url, key) as client:
        model = await client.model()
        played = [0]

        async def play() -> None:
            for session in waiting:
                if played[0] >= flags.count:
                    return
                played[0] += 1
                found = await _play(client, model, session, flags)
                if found is None:
                    played[0] -= 1
                    skipped.append(session.name)
                    continue
                turns.extend(found)

        await asyncio.gather(*(play() for _ in range(flags.concurrency)))
    return _figures(turns, time.perf_counter() - began) | {"skipped": skipped}


async def _play(client: ChatClient, model: str, session: Session, flags: argparse.Namespace) -> list[Turn] | None:
    """All turns of one session; None when it does not fit the context."""
    turns: list[Turn] = []
    previous = 0
    for number in range(min(len(session.turns), flags.turns)):
        try:
            reply = await client.chat(
                model=model,
                messages=session.request(number),
                tools=session.tools,
                tool_choice="none",  # the same prompt, and text from the first token on: a call shows itself late
                max_tokens=flags.max_tokens,
                temperature=0,
            )
        except RequestError as error:
            if error.code != "context_length_exceeded":
                raise
            return None
        turns.append(Turn(session.name, number + 1, previous, reply))
        previous = reply.prompt
        say(f"{session.name} turn {number + 1}: {reply.cached}/{reply.prompt} cached, ttft {reply.ttft_ms:.0f} ms")
    return turns


def _sessions(flags: argparse.Namespace) -> Iterator[Session]:
    if flags.sessions is None:
        return iter([made_up(index, turns=flags.turns, tools=flags.tools) for index in range(flags.count)])
    limit = flags.context * _CHARACTERS_PER_TOKEN
    return (session for session in recorded(flags.sessions) if _characters(session, flags.turns) < limit)


def _characters(session: Session, turns: int) -> int:
    last = min(len(session.turns), turns) - 1
    return len(json.dumps(session.tools)) + len(json.dumps(session.request(last))) if last >= 0 else 0


def _figures(turns: list[Turn], seconds: float) -> dict[str, Any]:
    cold = [turn.reply for turn in turns if turn.number == 1]
    later = [turn for turn in turns if turn.number > 1]
    warm = [turn.reply for turn in later]
    return {
        "ttft_cold_ms": _median([reply.ttft_ms for reply in cold]),
        "ttft_warm_ms": _median([reply.ttft_ms for reply in warm]),
        "cached_ratio": round(mean(turn.cached_ratio for turn in later), 4) if later else 0.0,
        "cached_ratio_min": round(min(turn.cached_ratio for turn in later), 4) if later else 0.0,
        "predicted_minus_delivered": round(mean(turn.reply.predicted - turn.reply.cached for turn in turns), 3),
        "decode_tps": _median([turn.reply.decode_tps for turn in turns if turn.reply.decode_tps]),
        "hit_rate": round(sum(t.reply.cached for t in turns) / max(1, sum(t.reply.prompt for t in turns)), 4),
        "sessions": len({turn.session for turn in turns}),
        "turns": len(turns),
        "computed_tokens": _computed(turns),
        "seconds": round(seconds, 1),
    }


def _computed(turns: list[Turn]) -> dict[str, int]:
    """Prompt tokens that each worker had to compute."""
    return {
        worker: sum(turn.reply.prompt - turn.reply.cached for turn in turns if turn.reply.worker == worker)
        for worker in sorted({turn.reply.worker for turn in turns})
    }


def _median(values: list[float]) -> float:
    return round(median(values), 1) if values else 0.0


def _as_table(figures: dict[str, Any]) -> str:
    shown = {"prefix-aware": figures}
    if "without_placement" in figures:
        shown["load only"] = figures["without_placement"]
    columns = ["ttft_cold_ms", "ttft_warm_ms", "cached_ratio", "hit_rate", "predicted_minus_delivered", "decode_tps"]
    rows = [[name, *(values[column] for column in columns), values["seconds"]] for name, values in shown.items()]
    if len(shown) == 2:
        rows.append(["ratio", *_ratios(shown["load only"], figures, [*columns, "seconds"])])
    return table(["placement", *columns, "seconds"], rows)


def _ratios(base: dict[str, Any], ours: dict[str, Any], columns: list[str]) -> list[str]:
    return [f"{ours[name] / base[name]:.2f}" if base[name] else "-" for name in columns]


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.sessions", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--sessions", type=Path, help="recorded sessions (JSON lines, .gz or not); made up by default")
    parser.add_argument("--count", type=int, default=10, help="sessions to play")
    parser.add_argument("--turns", type=int, help="turns of each session at most; 6 made up, or all that are recorded")
    parser.add_argument("--tools", type=int, default=20, help="tools of a made-up session")
    parser.add_argument("--concurrency", type=int, default=2, help="sessions at once")
    parser.add_argument("--max-tokens", type=int, default=16, help="tokens generated in each turn at most")
    parser.add_argument("--context", type=int, default=8192, help="the model's context, to pass over longer sessions")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--url", help="a gateway that runs already; then there is no comparison of placements")
    parser.add_argument("--key", help="a tenant's key at --url")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    flags = parser.parse_args()
    if flags.url and not flags.key:
        parser.error("--url needs --key")
    if flags.turns is None:
        flags.turns = 1_000 if flags.sessions else 6
    return flags


if __name__ == "__main__":
    sys.exit(main())
