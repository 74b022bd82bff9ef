"""One real stack for all end-to-end tests: `saltway up` with the packaged model and two workers."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from openai import OpenAI

from bench.stack import Stack
from tests.e2e.workers import Workers


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home: Path = tmp_path_factory.mktemp("saltway")
    with Stack(home) as running:
        yield running


@pytest.fixture(scope="session")
def acme(stack: Stack) -> Iterator[OpenAI]:
    with _client(stack, "SALTWAY_KEY_ACME") as client:
        yield client


@pytest.fixture(scope="session")
def globex(stack: Stack) -> Iterator[OpenAI]:
    with _client(stack, "SALTWAY_KEY_GLOBEX") as client:
        yield client


@pytest.fixture(scope="session")
def admin(stack: Stack) -> Iterator[httpx2.Client]:
    headers = {"Authorization": f"Bearer {stack.keys['SALTWAY_ADMIN_KEY']}"}
    with httpx2.Client(base_url=stack.url, headers=headers, timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture(scope="session")
def raw(stack: Stack) -> Iterator[httpx2.Client]:
    """No key of its own: for requests that no SDK would send."""
    with httpx2.Client(base_url=stack.url, timeout=300, trust_env=False) as client:
        yield client


@pytest.fixture(scope="session")
def workers(stack: Stack, admin: httpx2.Client) -> Iterator[Workers]:
    with Workers(stack, admin) as running:
        yield running


def _client(stack: Stack, key: str) -> OpenAI:
    return OpenAI(base_url=f"{stack.url}/v1", api_key=stack.keys[key], max_retries=0, timeout=300)
