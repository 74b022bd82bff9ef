"""Chat through the official SDK: plain and streamed, with the fields that unchanged client code sends."""

from typing import Any

import httpx2
from openai import OpenAI

from bench.stack import Stack

MODEL = "smollm2"
QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of Japan? Answer in one sentence."}]


def test_a_plain_reply_has_content_a_reason_and_usage(acme: OpenAI) -> None:
    reply = acme.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=24, temperature=0)
    assert reply.object == "chat.completion"
    assert reply.model == MODEL
    (choice,) = reply.choices
    assert "Tokyo" in (choice.message.content or "")
    assert choice.finish_reason in ("stop", "length")
    assert reply.usage is not None
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert reply.usage.prompt_tokens_details is not None
    assert reply.usage.prompt_tokens_details.cached_tokens is not None


def test_a_stream_folds_to_the_plain_reply(acme: OpenAI) -> None:
    fields: dict[str, Any] = {"model": MODEL, "messages": QUESTION, "max_tokens": 24, "temperature": 0}
    plain = acme.chat.completions.create(**fields)
    with acme.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}) as stream:
        chunks = list(stream)
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason]
    assert text == plain.choices[0].message.content
    assert reasons == [plain.choices[0].finish_reason]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert plain.usage is not None
    assert chunks[-1].usage.completion_tokens == plain.usage.completion_tokens
    assert [chunk for chunk in chunks[:-1] if chunk.usage] == []


def test_usage_is_streamed_only_when_asked_for(acme: OpenAI) -> None:
    with acme.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=4, stream=True) as stream:
        chunks = list(stream)
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)


def test_a_stop_string_ends_the_reply_and_is_not_shown(acme: OpenAI) -> None:
    reply = acme.chat.completions.create(
        model=MODEL, messages=QUESTION, max_tokens=32, temperature=0, stop=["Tokyo", "\n\n"]
    )
    assert "Tokyo" not in (reply.choices[0].message.content or "")
    assert reply.choices[0].finish_reason == "stop"


def test_a_seed_repeats_and_another_seed_differs(acme: OpenAI) -> None:
    def say(seed: int) -> str | None:
        reply = acme.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Tell a story."}],
            max_tokens=16,
            temperature=1.2,
            seed=seed,
        )
        return reply.choices[0].message.content

    assert say(7) == say(7)
    assert len({say(seed) for seed in (7, 8, 9)}) > 1


def test_a_tiny_nucleus_is_greedy(acme: OpenAI) -> None:
    greedy = acme.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=12, temperature=0)
    narrow = acme.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=12, temperature=1, top_p=1e-6)
    assert narrow.choices[0].message.content == greedy.choices[0].message.content


def test_both_names_of_the_token_limit_are_kept(acme: OpenAI) -> None:
    old = acme.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=3, temperature=0)
    new = acme.chat.completions.create(model=MODEL, messages=QUESTION, max_completion_tokens=3, temperature=0)
    for reply in (old, new):
        assert reply.choices[0].finish_reason == "length"
        assert reply.usage is not None
        assert reply.usage.completion_tokens == 3


def test_log_probabilities_cover_every_token(acme: OpenAI) -> None:
    reply = acme.chat.completions.create(
        model=MODEL, messages=QUESTION, max_tokens=6, temperature=0, logprobs=True, top_logprobs=3
    )
    assert reply.choices[0].logprobs is not None
    content = reply.choices[0].logprobs.content
    assert content is not None
    assert reply.usage is not None
    assert len(content) == reply.usage.completion_tokens
    for entry in content:
        assert entry.logprob <= 0
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token
    assert "".join(entry.token for entry in content) == reply.choices[0].message.content


def test_n_choices_are_numbered_and_the_prompt_is_counted_once(acme: OpenAI) -> None:
    one = acme.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=4, temperature=0)
    three = acme.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=4, n=3, temperature=1, seed=1)
    assert [choice.index for choice in three.choices] == [0, 1, 2]
    assert one.usage is not None
    assert three.usage is not None
    assert three.usage.prompt_tokens == one.usage.prompt_tokens
    assert three.usage.completion_tokens == 12


def test_replies_carry_what_an_operator_asks_for(acme: OpenAI) -> None:
    reply = acme.chat.completions.with_raw_response.create(model=MODEL, messages=QUESTION, max_tokens=2)
    assert reply.headers["x-request-id"]
    assert reply.headers["x-saltway-worker"] in ("w0", "w1")
    assert int(reply.headers["x-saltway-cached-tokens"]) >= 0
    assert float(reply.headers["x-saltway-overhead-ms"]) >= 0


def test_the_model_list_says_which_template_is_used(acme: OpenAI) -> None:
    (model,) = acme.models.list().data
    assert model.id == MODEL
    assert model.model_dump()["saltway"]["template"] == "chatml-hermes"


def test_what_shall_not_be_stored_is_not_and_a_lease_is_accepted(
    stack: Stack, acme: OpenAI, raw: httpx2.Client
) -> None:
    def cached(**saltway: Any) -> int:
        question: list[Any] = [{"role": "user", "content": "Nothing of this is to be kept. " * 10}]
        reply = acme.chat.completions.create(
            model=MODEL, messages=question, max_tokens=2, extra_body={"saltway": saltway}
        )
        assert reply.usage is not None
        assert reply.usage.prompt_tokens_details is not None
        return reply.usage.prompt_tokens_details.cached_tokens or 0

    lease = {"priority": 80, "ttl_seconds": 60, "session": "chat"}
    assert [cached(store=False) for _ in range(2)][1] < 48
    assert cached(retention=lease) < 48
    assert cached(retention=lease) >= 64
    # Else it would end in the midst of another test, of those that count leases.
    auth = {"Authorization": f"Bearer {stack.keys['SALTWAY_KEY_ACME']}"}
    raw.delete("/v1/sessions/chat", headers=auth).raise_for_status()
