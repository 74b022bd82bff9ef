"""`saltway up` itself: what it says, what it leaves, and how it refuses."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
from openai import OpenAI

from bench.stack import Stack
from gateway.up.ports import free_ports
from tests.e2e.workers import eventually


def _up(home: Path, port: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", "up", "--home", str(home), "--port", str(port), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_it_says_what_to_do_next(stack: Stack) -> None:
    words = stack.words()
    assert f"ready at {stack.url}" in words
    assert f"curl {stack.url}/v1/chat/completions" in words
    assert f"dashboard {stack.url}/admin" in words
    assert '"template": "chatml-hermes"' in (stack.home / "logs" / "gateway.log").read_text("utf-8")


def test_secrets_are_for_the_owner_alone(stack: Stack) -> None:
    for name in ("demo.env", "secret", "worker.token"):
        assert stat.S_IMODE((stack.home / name).stat().st_mode) == 0o600
    assert set(stack.keys) == {"SALTWAY_URL", "SALTWAY_ADMIN_KEY", "SALTWAY_KEY_ACME", "SALTWAY_KEY_GLOBEX"}


def test_no_prompt_text_and_no_key_is_in_the_logs(stack: Stack, acme: OpenAI) -> None:
    question: list[Any] = [{"role": "user", "content": "A question about periwinkles."}]
    reply = acme.chat.completions.create(model="smollm2", messages=question, max_tokens=4, logprobs=True)
    number = reply.id.removeprefix("chatcmpl-")

    def logs() -> str:
        return "".join(path.read_text("utf-8") for path in (stack.home / "logs").iterdir())

    assert eventually(lambda: number in logs())
    for secret in (*list(stack.keys.values())[1:], "periwinkles"):
        assert secret not in logs()


def test_a_port_in_use_is_one_sentence(stack: Stack, tmp_path: Path) -> None:
    done = _up(tmp_path / "home", stack.port)
    assert done.returncode != 0
    (sentence,) = done.stderr.strip().splitlines()
    assert str(stack.port) in sentence
    assert not list((tmp_path / "home").glob("run/*.pid"))


def test_a_home_in_use_is_one_sentence(stack: Stack) -> None:
    done = _up(stack.home, free_ports(1)[0])
    assert done.returncode != 0
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_missing_model_is_one_sentence(tmp_path: Path) -> None:
    done = _up(tmp_path / "home", free_ports(1)[0], "--model", str(tmp_path / "none.gguf"))
    assert done.returncode != 0
    (sentence,) = done.stderr.strip().splitlines()
    assert "none.gguf" in sentence


def test_a_file_that_is_no_model_is_one_sentence(tmp_path: Path) -> None:
    model = tmp_path / "broken.gguf"
    model.write_bytes(b"not a model at all, only some text of a file")
    done = _up(tmp_path / "home", free_ports(1)[0], "--model", str(model), "--workers", "1")
    assert done.returncode != 0
    assert "GGUF" in done.stderr


def test_stopping_ends_every_process_and_starting_again_keeps_keys_and_cache(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Stack(home, workers=1) as first:
        keys = dict(first.keys)
        children = [int(path.read_text()) for path in (home / "run").glob("*.pid")]
        assert children
        assert all(psutil.pid_exists(child) for child in children)
        assert _cached(first, "SALTWAY_KEY_ACME") == 0
        assert first.stop() == 0
        assert not any(_runs(child) for child in children)
    with Stack(home, workers=1) as second:
        assert dict(second.keys) | {"SALTWAY_URL": ""} == keys | {"SALTWAY_URL": ""}
        # Yesterday's prefix comes from disk, for its owner alone.
        assert _cached(second, "SALTWAY_KEY_GLOBEX") == 0
        assert _cached(second, "SALTWAY_KEY_ACME") >= 64


def _cached(stack: Stack, key: str) -> int:
    """Cached tokens of one and the same request."""
    question: list[Any] = [{"role": "user", "content": "What does a salt way carry? " * 14}]
    with OpenAI(base_url=f"{stack.url}/v1", api_key=stack.keys[key], max_retries=0) as client:
        reply = client.chat.completions.create(model="smollm2", messages=question, max_tokens=2)
    assert reply.usage is not None
    assert reply.usage.prompt_tokens_details is not None
    return reply.usage.prompt_tokens_details.cached_tokens or 0


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return str(psutil.Process(pid).status()) != "zombie"
