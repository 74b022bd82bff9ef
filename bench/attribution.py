"""What miss attribution adds to a request: `python -m bench.attribution`.

A prompt of about 4,000 tokens with 40 tools and a history, sent turn after turn by a tenant that has 60 other sessions
in memory. CPU time of this thread, medians; nothing else of the gateway is in it.

cold_ms       a prompt none of whose segments was seen before
turn_ms       the next turn of a session
diverged_ms   the same with another clock in the system prompt
chain_ms      naming the blocks of that prompt for routing, for scale
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

from bench.agents import made_up_tools
from cacheplane.attribution import Attribution, Departures, Origin, Outlook, Part, Segment
from cacheplane.fleet import Fleet
from cacheplane.identity import BlockChain, Namespace, token_words
from cacheplane.index import PrefixIndex

BLOCK = 16
CHARACTERS = 4  # of English, a token
SESSIONS = 60
SYSTEM = "You run the support desk. Answer in one sentence, and use a tool when an id is given. " * 12


class Tenant:
    """Sends prompts and has them attributed; `cpu_ms` takes the time of both halves."""

    def __init__(self) -> None:
        index = PrefixIndex()
        self._attribution = Attribution(b"a secret of the bench", Fleet(), index, Departures(index))
        self._namespace = Namespace(b"n" * 32)

    def cpu_ms(self, segments: list[Segment], cached: int) -> tuple[float, dict[str, int]]:
        size = segments[-1].start + segments[-1].tokens + 3
        tokens = [hash((segment.text, at)) % 49_152 for segment in segments for at in range(segment.tokens)]
        tokens += [1] * (size - len(tokens))
        words = token_words(tokens)  # once, as a gateway does; and its placement has asked for the keys of the chain
        chain = BlockChain.of(words, self._namespace, BLOCK)
        assert len(chain.keys)
        began = time.thread_time()
        sketch = self._attribution.sketch(Origin("acme", "m", ("m",), 0), words, BLOCK, segments)
        misses = self._attribution.attribute(sketch, chain, Outlook(cached, cached), cached)
        self._attribution.finished(sketch, served=True)
        return (time.thread_time() - began) * 1000, {str(reason): count for reason, count in misses.tokens.items()}


def prompt(session: str, turns: int, clock: str = "") -> list[Segment]:
    texts = [(Part.SYSTEM, clock + SYSTEM, "")]
    texts += [(Part.TOOLS, json.dumps(tool), tool["function"]["name"]) for tool in made_up_tools(40)]
    for turn in range(turns):
        texts.append((Part.HISTORY, f"Request {turn} of {session}: what became of order {turn}? " * 2, ""))
        texts.append((Part.HISTORY, f"Order {turn} of {session} has left and is to arrive on Monday. " * 2, ""))
    segments, start = [], 0
    for part, text, name in texts:
        size = max(1, len(text) // CHARACTERS)
        segments.append(Segment(part, text, start, size, name))
        start += size
    return segments


def measure(repeats: int) -> dict[str, float]:
    tenant = Tenant()
    for number in range(SESSIONS):
        tenant.cpu_ms(prompt(f"session {number} ", 4), 0)

    def median(one: Callable[[int], float]) -> float:
        return round(statistics.median(one(number) for number in range(repeats)), 3)

    def cold(number: int) -> float:
        return Tenant().cpu_ms(prompt(f"s{number}", 12), 0)[0]

    def turn(number: int) -> float:
        tenant.cpu_ms(prompt(f"t{number} ", 11), 0)
        before = prompt(f"t{number} ", 11)[-1]
        return tenant.cpu_ms(prompt(f"t{number} ", 12), (before.start + before.tokens) // BLOCK * BLOCK)[0]

    def diverged(number: int) -> float:
        tenant.cpu_ms(prompt(f"d{number} ", 11, "It is 09:05. "), 0)
        spent, missed = tenant.cpu_ms(prompt(f"d{number} ", 12, "It is 10:07. "), 0)
        assert "diverged_volatile" in missed
        return spent

    def chain(_number: int) -> float:
        began = time.thread_time()
        BlockChain.of(ids, Namespace(b"n" * 32), BLOCK)
        return (time.thread_time() - began) * 1000

    size = prompt("s", 12)[-1]
    ids = list(range(1000, 1000 + size.start + size.tokens))
    figures = {
        "chain_ms": median(chain),
        "cold_ms": median(cold),
        "turn_ms": median(turn),
        "diverged_ms": median(diverged),
    }
    return {"prompt_tokens": size.start + size.tokens, "segments": len(prompt("s", 12)), **figures}


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU time that miss attribution adds to a request.")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    figures = measure(arguments.repeats)
    print(json.dumps(figures) if arguments.json else "\n".join(f"{name:16}{value}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
