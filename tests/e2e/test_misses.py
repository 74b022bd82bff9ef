"""Why tokens were computed again, with real workers: one fault each, told in the header and explained afterwards."""

import json
import os
import subprocess
import sys
import time
from typing import Any

from openai import OpenAI

from bench.agents import made_up_tools
from bench.stack import Stack
from tests.e2e.workers import eventually

MODEL = "smollm2"
RULES = "The desk answers in one sentence, names the order that was asked for, and never guesses an id."
TOOLS: list[Any] = made_up_tools(4)


def _ask(client: OpenAI, system: str, *, tools: list[Any] = TOOLS) -> tuple[dict[str, int], str]:
    """(missed tokens by reason, request id) of one short request with these tools."""
    messages: list[Any] = [
        {"role": "system", "content": system},
        {"role": "user", "content": "Where is order 17, and who has signed for it?"},
    ]
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=messages, tools=tools, tool_choice="none", max_tokens=2, temperature=0
    )
    usage = raw.parse().usage
    assert usage is not None
    missed = dict(entry.split("=") for entry in raw.headers["x-saltway-miss"].split(","))
    tokens = {reason: int(count) for reason, count in missed.items()}
    assert usage.prompt_tokens == int(raw.headers["x-saltway-cached-tokens"]) + sum(tokens.values())
    return tokens, raw.headers["x-request-id"]


def _most(tokens: dict[str, int]) -> str:
    return max(tokens, key=lambda reason: tokens[reason])


def _saltway(stack: Stack, *arguments: str) -> str:
    done = _run(stack, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _is_told_of(stack: Stack, request_id: str) -> bool:
    """Whether the ledger has a request, which is written in batches."""
    return _run(stack, "explain", request_id).returncode == 0


def _run(stack: Stack, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", *arguments]
    environment = os.environ | {"SALTWAY_HOME": str(stack.home)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_clock_in_the_system_prompt_is_found_and_explained(acme: OpenAI, stack: Stack) -> None:
    _ask(acme, f"It is 2026-11-29T21:05:33Z. {RULES}")
    missed, request_id = _ask(acme, f"It is 2026-11-29T21:07:02Z. {RULES}")
    assert _most(missed) == "diverged_volatile"
    assert eventually(lambda: _is_told_of(stack, request_id))
    told = json.loads(_saltway(stack, "explain", request_id, "--json"))
    assert (told["tenant"], told["missed_tokens"]) == ("acme", missed)
    assert (told["diverged"]["part"], told["diverged"]["kind"]) == ("system", "volatile")
    assert told["diverged"]["token"] < 32
    assert told["placed"]["runner_up"] in ("w0", "w1")
    assert f"it cost {missed['diverged_volatile']} tokens" in _saltway(stack, "explain", request_id)


def test_shuffled_tools_are_found(acme: OpenAI) -> None:
    _ask(acme, f"Shuffled. {RULES}")
    missed, _ = _ask(acme, f"Shuffled. {RULES}", tools=TOOLS[::-1])
    assert _most(missed) == "diverged_tools"
    again, _ = _ask(acme, f"Shuffled. {RULES}", tools=TOOLS[::-1])
    assert set(again) == {"below_block"}


def test_a_rotated_salt_is_told_to_its_tenant_alone(acme: OpenAI, globex: OpenAI, stack: Stack) -> None:
    for client in (acme, globex):
        _ask(client, f"Rotated. {RULES}")
    _saltway(stack, "salt", "rotate", "tenant:acme")
    time.sleep(2.5)  # gateways read the epoch again within two seconds
    missed, _ = _ask(acme, f"Rotated. {RULES}")
    assert _most(missed) == "salt_rotated"
    assert set(_ask(globex, f"Rotated. {RULES}")[0]) == {"below_block"}
