"""One tenant never reuses another's blocks, on any worker; and the positive control does hit."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from openai import OpenAI

from tests.e2e.workers import Workers

MODEL = "smollm2"


def _say(client: OpenAI, name: str) -> tuple[str, int, int]:
    """One request of a session of this name: (worker, cached tokens, full blocks of the prompt in tokens)."""
    text = f"Isolation {name}. " + " ".join(f"Fact {number} of {name} is {number * 7}." for number in range(12))
    messages: list[Any] = [{"role": "system", "content": text}, {"role": "user", "content": "Go on."}]
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=messages, max_tokens=2, temperature=0)
    usage = raw.parse().usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    return (
        raw.headers["x-saltway-worker"],
        usage.prompt_tokens_details.cached_tokens or 0,
        usage.prompt_tokens // 16 * 16,
    )


def test_the_other_tenant_starts_cold_on_both_workers(acme: OpenAI, globex: OpenAI, workers: Workers) -> None:
    names = [f"story-{number}" for number in range(6)]
    with ThreadPoolExecutor(len(names)) as pool:
        first = dict(zip(names, pool.map(lambda name: _say(acme, name), names), strict=True))
    assert {worker for worker, _, _ in first.values()} == set(workers.names)
    for name in names:
        worker, cached, full = _say(acme, name)
        assert worker == first[name][0]
        assert full - 16 <= cached <= full
    # The system prompt's opening words are the same for all; a tenant's own earlier sessions may share those.
    (opening,) = {first[names[0]][1]}
    assert opening == 0
    for name in names:
        _, cached, full = _say(globex, name)
        assert cached < full // 4
    for name in names:
        _, cached, full = _say(globex, name)
        assert full - 16 <= cached <= full
