"""The path of a request, driven by the official SDK against a scripted worker."""

from typing import Any

import pytest
from openai import APIStatusError, AuthenticationError, BadRequestError, NotFoundError
from openai.types.chat import ChatCompletion

from cacheplane.identity import Namespace, Scope, derive_salt
from gateway.settings import Limits
from tenants import SaltStore, now_ms
from tenants.keys import revoke_key
from tests.gateway.scripted_worker import Script, ScriptedWorker
from tests.gateway.stack import SECRET, Stack, eventually, running

SAID = "Tell me about the roads on which salt was carried to the market of the old town."
VERDICTS = ("valid", "violated")
MESSAGES: list[Any] = [{"role": "user", "content": SAID}]


async def ask(stack: Stack, key: str | None = None, **fields: Any) -> ChatCompletion:
    """One plain question."""
    asked: dict[str, Any] = {"model": "tiny", "messages": MESSAGES} | fields
    reply = await stack.client(key).chat.completions.create(**asked)
    assert isinstance(reply, ChatCompletion)
    return reply


def cached(reply: ChatCompletion) -> int | None:
    assert reply.usage is not None
    assert reply.usage.prompt_tokens_details is not None
    return reply.usage.prompt_tokens_details.cached_tokens


async def test_a_plain_question_gets_a_plain_answer() -> None:
    async with running() as stack:
        reply = await ask(stack)
        assert reply.choices[0].message.content == "Hello, world."
        assert reply.choices[0].finish_reason == "stop"
        assert reply.usage is not None
        (sent,) = stack.workers[0].requests
        assert reply.usage.prompt_tokens == len(sent.tokens)
        assert reply.usage.completion_tokens == len("Hello, world.")
        assert cached(reply) == 0


async def test_a_stream_brings_the_same_answer_piece_by_piece() -> None:
    async with running() as stack:
        stream = await stack.client().chat.completions.create(
            model="tiny", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert chunks[0].choices[0].delta.role == "assistant"
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == "Hello, world."
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
        assert chunks[-1].choices == []
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == len(text)


async def test_a_stream_ends_with_done_and_has_usage_only_when_asked() -> None:
    async with running() as stack:
        response = await stack.post({"model": "tiny", "messages": MESSAGES, "stream": True})
        text = await response.text()
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert text.endswith("data: [DONE]\n\n")
        assert text.count("[DONE]") == 1
        assert '"usage"' not in text
        (row,) = await stack.ledger(1)
        assert (row.completion_tokens, row.streamed) == (len("Hello, world."), True)  # metered all the same


async def test_every_answer_says_how_it_was_served() -> None:
    async with running() as stack:
        for stream in (False, True):
            response = await stack.post({"model": "tiny", "messages": MESSAGES, "stream": stream})
            assert response.headers["x-request-id"].startswith("req_")
            assert response.headers["x-saltway-worker"] == "w0"
            assert response.headers["x-saltway-placement"] == "events"
            assert float(response.headers["x-saltway-overhead-ms"]) > 0
            expected = str(len(stack.workers[0].requests[0].tokens) // 16 * 16) if stream else "0"
            assert response.headers["x-saltway-cached-tokens"] == expected
            await stack.indexed("w0", len(stack.workers[0].requests[0].tokens) // 16)


async def test_overhead_leaves_out_what_the_worker_takes() -> None:
    async with running() as stack:
        await ask(stack)
        (row,) = await stack.ledger(1)
        assert row.ttft_ms is not None
        assert 0 < row.overhead_ms < row.duration_ms
        assert row.ttft_ms <= row.duration_ms


async def test_a_second_turn_is_cached_predicted_and_recorded() -> None:
    async with running() as stack:
        assert cached(await ask(stack)) == 0
        blocks = len(stack.workers[0].requests[0].tokens) // 16
        await stack.indexed("w0", blocks)
        assert cached(await ask(stack)) == blocks * 16
        first, second = await stack.ledger(2)
        assert (first.cached_tokens, first.predicted_tokens, first.available_tokens) == (0, 0, 0)
        assert (second.cached_tokens, second.predicted_tokens) == (blocks * 16, blocks * 16)
        assert second.available_tokens == blocks * 16
        assert (second.status, second.finish_reason, second.placement_mode) == (200, "stop", "events")
        assert (second.tenant_id, second.model, second.worker_id, second.dialect) == ("acme", "tiny", "w0", "chat")


async def test_another_tenant_starts_cold_and_the_first_stays_warm() -> None:
    async with running() as stack:
        await ask(stack)
        blocks = len(stack.workers[0].requests[0].tokens) // 16
        await stack.indexed("w0", blocks)
        assert cached(await ask(stack, stack.keys.globex)) == 0
        assert cached(await ask(stack)) == blocks * 16
        acme, globex, again = stack.workers[0].requests
        assert acme.tokens == globex.tokens
        assert acme.spans == again.spans
        assert acme.spans != globex.spans
        assert acme.tag == again.tag
        assert acme.tag != globex.tag
        assert "acme" not in acme.tag


async def test_the_namespace_is_derived_from_the_secret_and_not_from_anything_sent() -> None:
    async with running() as stack:
        smuggled = {"cache_salt": "globex", "extra_key": "globex", "tenant": "globex"}
        await ask(stack, extra_body=smuggled, extra_headers={"x-tenant-id": "globex"})
        salt = derive_salt(SECRET, Scope("tenant", "acme"), 0)
        namespace = Namespace.derive(salt=salt, model="fp-1", kv_dtype="float32")
        (span,) = stack.workers[0].requests[0].spans
        assert (span.start, span.namespace) == (0, namespace.hex)


async def test_a_client_divides_its_own_cache_by_a_sub_namespace() -> None:
    async with running() as stack:
        for sub in ("one", "two", "one"):
            await ask(stack, extra_body={"saltway": {"namespace": sub}})
        spaces = [request.spans[0].namespace for request in stack.workers[0].requests]
        assert spaces[0] == spaces[2] != spaces[1]


async def test_a_rotated_salt_makes_the_cache_unreachable() -> None:
    async with running() as stack:
        await ask(stack)
        await stack.indexed("w0", len(stack.workers[0].requests[0].tokens) // 16)
        await SaltStore(stack.database).rotate("tenant:acme", now_ms())

        async def cold() -> bool:
            return cached(await ask(stack)) == 0

        await eventually(cold)  # within two seconds, as the epoch is read again


async def test_sampling_fields_reach_the_worker_and_leave_the_prompt_alone() -> None:
    async with running() as stack:
        await ask(stack)
        await ask(
            stack,
            temperature=0.5,
            top_p=0.9,
            seed=7,
            stop=["END"],
            max_completion_tokens=33,
            n=2,
            logprobs=True,
            top_logprobs=1,
            frequency_penalty=0.25,
            presence_penalty=-0.25,
            logit_bias={"5": -100},
            extra_body={
                "top_k": 20,
                "min_p": 0.05,
                "repetition_penalty": 1.1,
                "min_tokens": 3,
                "ignore_eos": True,
                "stop_token_ids": [9],
            },
        )
        plain, full = stack.workers[0].requests
        assert full.tokens == plain.tokens
        assert full.spans == plain.spans
        sampling = full.sampling
        assert (sampling.temperature, sampling.top_p, sampling.seed, sampling.stop) == (0.5, 0.9, 7, ["END"])
        assert (sampling.max_tokens, full.n, sampling.logprobs) == (33, 2, 1)
        assert (sampling.frequency_penalty, sampling.presence_penalty) == (0.25, -0.25)
        assert sampling.logit_bias == {"5": -100}
        assert (sampling.top_k, sampling.min_p, sampling.repetition_penalty) == (20, 0.05, 1.1)
        assert (sampling.min_tokens, sampling.ignore_eos, sampling.stop_ids) == (3, True, [9])
        assert (plain.sampling.max_tokens, plain.sampling.logprobs) == (Limits().completion_tokens, None)


async def test_several_choices_count_the_prompt_once() -> None:
    async with running() as stack:
        reply = await ask(stack, n=3)
        assert [choice.index for choice in reply.choices] == [0, 1, 2]
        (row,) = await stack.ledger(1)
        assert row.prompt_tokens == len(stack.workers[0].requests[0].tokens)
        assert row.completion_tokens == 3 * len("Hello, world.")


async def test_tools_constrain_the_grammar_and_their_calls_come_back_parsed() -> None:
    tool: Any = {"type": "function", "function": {"name": "weigh", "parameters": {"type": "object"}}}
    async with running() as stack:
        call = '<tool_call>\n{"name": "weigh", "arguments": {"pounds": 3}}\n</tool_call>'
        stack.workers[0].scripts.append(Script([call]))
        reply = await ask(stack, tools=[tool], tool_choice="required")
        (made,) = reply.choices[0].message.tool_calls or []
        assert made.type == "function"
        assert (made.function.name, made.function.arguments) == ("weigh", '{"pounds": 3}')
        assert reply.choices[0].finish_reason == "tool_calls"
        assert stack.workers[0].requests[0].grammar is not None
        (row,) = await stack.ledger(1)
        assert row.finish_reason == "tool_calls"


async def test_max_tokens_is_clipped_to_what_the_context_has_left() -> None:
    async with running(ScriptedWorker(context=200)) as stack:
        await ask(stack, max_tokens=100_000)
        await ask(stack)
        first, second = stack.workers[0].requests
        assert first.sampling.max_tokens == second.sampling.max_tokens == 200 - len(first.tokens)


async def test_a_prompt_that_fills_the_context_is_refused_by_name() -> None:
    async with running(ScriptedWorker(context=64)) as stack:
        with pytest.raises(BadRequestError) as refused:
            await ask(stack)
        assert (refused.value.param, refused.value.code) == ("messages", "context_length_exceeded")
        assert stack.workers[0].requests == []
        (row,) = await stack.ledger(1)
        assert (row.status, row.error_code, row.worker_id) == (400, "context_length_exceeded", None)
        assert row.prompt_tokens > 64


async def test_a_token_that_the_model_does_not_have_cannot_be_biased() -> None:
    async with running() as stack:
        await ask(stack, logit_bias={"258": -1})
        with pytest.raises(BadRequestError) as refused:
            await ask(stack, logit_bias={"259": -1})
        assert refused.value.param == "logit_bias.259"
        with pytest.raises(BadRequestError) as refused:
            await ask(stack, extra_body={"stop_token_ids": [258, 259]})
        assert refused.value.param == "stop_token_ids[1]"
        assert "258" in refused.value.message


async def test_an_unknown_model_is_not_found() -> None:
    async with running() as stack:
        with pytest.raises(NotFoundError) as missing:
            await ask(stack, model="gpt-5")
        assert (missing.value.param, missing.value.code) == ("model", "model_not_found")
        (row,) = await stack.ledger(1)
        assert (row.status, row.model) == (404, None)


async def test_a_schema_that_cannot_be_enforced_is_refused_by_keyword() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"not": {"type": "string"}}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    async with running() as stack:
        with pytest.raises(BadRequestError) as refused:
            await ask(stack, response_format=wanted)
        assert refused.value.param == "response_format.json_schema.schema.properties.a.not"


async def test_what_a_worker_said_against_its_schema_is_counted_and_delivered_all_the_same() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    async with running() as stack:
        stack.workers[0].scripts.extend([Script(['{"n": ', "3}"]), Script(['{"n": ', '"three"}'])])
        for said in ('{"n": 3}', '{"n": "three"}'):
            assert (await ask(stack, response_format=wanted)).choices[0].message.content == said

        async def counted() -> bool:
            text = await (await stack.get("/metrics", stack.keys.admin)).text()
            return all(f'saltway_checked_outputs_total{{verdict="{verdict}"}} 1.0' in text for verdict in VERDICTS)

        await eventually(counted)


@pytest.mark.parametrize("which", ["wrong", "revoked", "expired"])
async def test_a_bad_key_is_unauthorized_and_never_echoed(which: str) -> None:
    async with running() as stack:
        key: str = stack.keys.acme[:-4] + "AAAA" if which == "wrong" else getattr(stack.keys, which)
        with pytest.raises(AuthenticationError) as refused:
            await ask(stack, key)
        assert (refused.value.status_code, refused.value.code) == (401, "invalid_api_key")
        assert key[-43:-4] not in refused.value.response.text
        assert stack.workers[0].requests == []
        await stack.ledger(0)


async def test_no_key_at_all_is_unauthorized_whatever_the_scheme() -> None:
    async with running() as stack:
        key = stack.keys.acme
        for headers in ({}, {"authorization": ""}, {"authorization": f"Basic {key}"}, {"authorization": "Bearer"}):
            response = await stack.http.post(f"{stack.url}/v1/chat/completions", json={}, headers=headers)
            assert (response.status, (await response.json())["error"]["code"]) == (401, "invalid_api_key")
            assert response.headers["www-authenticate"] == "Bearer"


async def test_a_revoked_key_stops_working_while_the_gateway_runs() -> None:
    async with running() as stack:
        await ask(stack)
        async with stack.database.transaction() as session:
            await revoke_key(session, stack.keys.acme.split("-")[2], now_ms())

        async def refused() -> bool:
            return (await stack.post({"model": "tiny", "messages": MESSAGES})).status == 401

        await eventually(refused)


async def test_keys_open_only_their_own_side_and_come_in_either_header() -> None:
    async with running() as stack:
        body = {"model": "tiny", "messages": MESSAGES}
        assert (await stack.post(body, stack.keys.admin)).status == 403
        assert (await stack.get("/admin/api/live", stack.keys.acme)).status == 403
        path = f"{stack.url}/v1/chat/completions"
        other = await stack.http.post(path, json=body, headers={"x-api-key": stack.keys.acme})
        assert other.status == 200


async def test_a_worker_that_refuses_the_request_is_quoted_and_not_tried_again() -> None:
    async with running(ScriptedWorker("w0"), ScriptedWorker("w1")) as stack:
        for worker in stack.workers:
            worker.default = Script(refuse=(400, "grammar", None))
        with pytest.raises(APIStatusError) as refused:
            await ask(stack)
        assert refused.value.status_code == 400
        assert sum(len(worker.requests) for worker in stack.workers) == 1


async def test_a_long_conversation_is_worked_on_in_a_thread_with_the_same_result() -> None:
    async with running(ScriptedWorker(context=200_000)) as stack:
        messages: list[Any] = [{"role": "user", "content": SAID * 500}]
        await ask(stack, messages=messages)
        (sent,) = stack.workers[0].requests
        assert len(sent.tokens) > 40_000
        await stack.indexed("w0", len(sent.tokens) // 16)
        assert cached(await ask(stack, messages=messages)) == (len(sent.tokens) - 1) // 16 * 16


async def test_placement_by_load_alone_says_so_and_still_predicts() -> None:
    async with running(placement="load-only") as stack:
        await ask(stack)
        blocks = len(stack.workers[0].requests[0].tokens) // 16
        await stack.indexed("w0", blocks)
        response = await stack.post({"model": "tiny", "messages": MESSAGES})
        assert response.headers["x-saltway-placement"] == "load-only"
        assert response.headers["x-saltway-predicted-tokens"] == str(blocks * 16)
