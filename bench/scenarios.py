"""What engines are timed at."""

import asyncio
import json
from itertools import count
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from bench.agents import made_up, made_up_tools
from bench.peers import SAMPLED, Peer, Worker
from gateway.schemas.gate import SchemaGate

_TEXT = Path(__file__).parent / "texts" / "mixed.txt"
_PROMPT = 64  # tokens of context that decoding starts from
_REPLY = 96
_REPLIES = 6  # that a constraint is timed at
_TURNS = 10
_ARGUMENTS = 48  # tokens that the arguments of one call may have
_SCHEMA = {
    "type": "object",
    "properties": {
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"id": {"type": "integer"}, "note": {"type": "string", "maxLength": 24}},
                "required": ["id", "note"],
                "additionalProperties": False,
            },
            "minItems": 12,
        }
    },
    "required": ["items"],
    "additionalProperties": False,
}
_LISTS = [["Check the heating", "Call the plumber", "Pay the invoice of May"], ["Book two seats", "Send the ticket"]]


class Scenarios:
    """Prompts are pieces of a fixed text, each behind a number of its own, so that none begins as another did."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens = self._encode(_TEXT.read_text("utf-8"))
        self._number = count()

    async def decode_tps(self, peer: Peer, concurrency: int) -> float:
        """From the last reply's first token to the first reply's last."""
        prompts = [self._fresh(_PROMPT) for _ in range(concurrency)]
        replies = await peer.together(prompts, _REPLY)
        begin, end = max(reply.at[0] for reply in replies), min(reply.at[-1] for reply in replies)
        return sum(begin < moment <= end for reply in replies for moment in reply.at) / (end - begin)

    async def prefill_tps(self, peer: Peer, length: int) -> float:
        return length / (await peer.generate(self._fresh(length), 1)).ttft

    async def ttft_warm_ms(self, peer: Peer, length: int) -> float:
        prefix = self._fresh(length)
        await peer.generate(prefix, 1)
        return 1000 * (await peer.generate([*prefix, *self._fresh(16)], 2)).ttft

    async def agent_session_s(self, peer: Peer, sessions: int) -> float:
        """The mean of the sessions."""
        return sum(await asyncio.gather(*(self._session(peer) for _ in range(sessions)))) / sessions

    async def constraint_ratio(self, peer: Peer) -> dict[str, float]:
        """Seconds per token of JSON behind the first, over those of free text behind like prompts, by how the schema is
        put.

        1         as it is: white space is up to the model
        gateway   as our gateway puts it: one spelling for each value; of our worker alone
        """
        schemas = {"1": _SCHEMA} | ({"gateway": _as_gateway(_SCHEMA)} if isinstance(peer, Worker) else {})
        free = await self._per_token(peer, None)
        return {name: await self._per_token(peer, schema) / free for name, schema in schemas.items()}

    async def _per_token(self, peer: Peer, schema: dict[str, Any] | None) -> float:
        """Seconds; of several replies, since how much one repeats itself is chance. Prompts show two lists as the
        schema has them, so that free text has something of the kind to go on with; and tokens are sampled, since the
        likeliest ones of a small model soon go round in a circle, where every draft is right."""
        seconds, tokens, lists = 0.0, 0, self._encode("\n".join(["\nLists:", *map(_as_list, _LISTS), ""]))
        for _ in range(_REPLIES):
            reply = await peer.generate([*self._fresh(_PROMPT), *lists], 2 * _REPLY, schema, SAMPLED)
            seconds += reply.at[-1] - reply.at[0]
            tokens += len(reply.at if schema is None else self._encode(reply.text)) - 1
        return seconds / tokens

    async def _session(self, peer: Peer) -> float:
        """Seconds that the engine took: what a turn adds is the arguments that it wrote, a result and a question."""
        tools, session = made_up_tools(20), made_up(next(self._number), turns=_TURNS)
        system, *rest = session.messages
        history, spent = f"{system['content']}\n{json.dumps(tools)}\n", 0.0
        for turn in range(_TURNS):
            history += f"user: {rest[3 * turn]['content']}\ncall: "
            schema = tools[turn % len(tools)]["function"]["parameters"]
            timed = await peer.generate(self._encode(history), _ARGUMENTS, schema)
            spent += timed.seconds
            history += f"{timed.text}\nresult: {rest[3 * turn + 2]['content']}\n"
        return spent

    def _fresh(self, length: int) -> list[int]:
        number = next(self._number)
        start = 97 * number % len(self._tokens)
        text = self._tokens[start:] + self._tokens * (1 + length // len(self._tokens))
        return [*self._encode(f"Part {number}.\n"), *text][:length]

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text).ids)


def _as_list(notes: list[str]) -> str:
    return json.dumps({"items": [{"id": number, "note": note} for number, note in enumerate(notes, 1)]})


def _as_gateway(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SchemaGate().admit(schema, "schema", strict=True))
    return found
