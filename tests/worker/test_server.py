"""The worker's HTTP surface over a real socket."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
import zmq.asyncio
from structlog.testing import capture_logs

from cacheplane.wire import (
    NO_SEQ,
    Event,
    Message,
    decode_batch,
    decode_replay,
    decode_snapshot,
    encode_replay_request,
)
from tests.worker.client import PROMPT, Client, body, reply_of
from tests.worker.kv.ledger import listed, replayed
from tests.worker.live import TOKEN, LiveWorker
from tests.worker.rig import ACME, GLOBEX
from tests.worker.tiny import write_tiny
from worker.wire import End, ErrorFrame, Finish, ModelInfo


@pytest.fixture(scope="module")
def live(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveWorker]:
    with LiveWorker(tiny_path, tmp_path_factory.mktemp("live"), "--slots", "4", "--context-length", "4096") as worker:
        yield worker


@pytest.fixture
async def client(live: LiveWorker) -> AsyncIterator[Client]:
    async with Client(live.url) as client:
        yield client


PATHS = [
    ("GET", "/ready"),
    ("GET", "/model"),
    ("GET", "/load"),
    ("GET", "/metrics"),
    ("GET", "/kv/snapshot"),
    ("POST", "/generate"),
    ("POST", "/abort"),
    ("POST", "/release"),
    ("POST", "/retain"),
    ("GET", "/nowhere"),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize("sent", [None, "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer "])
async def test_every_path_but_health_wants_the_token(
    live: LiveWorker, method: str, path: str, sent: str | None
) -> None:
    headers = {} if sent is None else {"authorization": sent}
    async with Client(live.url) as stranger:
        assert (await stranger.ask(method, path, headers=headers)).error == (401, "unauthorized", None)
        assert (await stranger.ask("GET", "/health", headers={})).status == 200


async def test_a_worker_with_a_draft_model_names_it_and_replies_as_without(
    client: Client, tiny_path: Path, tmp_path: Path
) -> None:
    (tmp_path / "small").mkdir()
    small = write_tiny(tmp_path / "small" / "small.gguf", seed=1)
    sampling = {"max_tokens": 40, "temperature": 0.8, "seed": 3}
    assert (await client.get("/model")).json["draft_model"] == ""
    with LiveWorker(tiny_path, tmp_path, "--draft-model", str(small), "--context-length", "4096") as live:
        async with Client(live.url) as other:
            assert (await other.get("/model")).json["draft_model"] == "small.gguf"
            assert (await other.get("/model")).json["fingerprint"] == (await client.get("/model")).json["fingerprint"]
            one, two = (await client.generate(sampling=sampling), await other.generate(sampling=sampling))
            assert one.tokens() == two.tokens()
            assert await other.metric("saltway_worker_draft_kv_bytes") > 0


async def test_an_unknown_path_is_not_found(client: Client) -> None:
    assert (await client.get("/nowhere")).error == (404, "not_found", None)
    assert (await client.get("/generate")).error == (404, "not_found", None)


async def test_a_ready_worker_says_so(client: Client) -> None:
    answer = await client.get("/ready")
    assert (answer.status, answer.json) == (200, {"state": "ready"})


async def test_the_model_hands_out_all_that_a_gateway_renders_with(client: Client) -> None:
    info = msgspec.json.decode((await client.get("/model")).body, type=ModelInfo)
    load = await client.load()
    assert (info.name, info.worker_id, info.architecture) == ("smollm2", "w0", "llama")
    assert (info.context_length, info.block_size, info.kv_dtype) == (4096, 16, "float16")
    assert (info.stop_ids, info.eos_id, info.bos_id) == ([0, 2], 2, 1)
    assert info.special_tokens == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert info.max_n == 4
    assert info.epoch == load.epoch
    assert "im_start" in info.chat_template
    assert "merges" in info.tokenizer


async def test_frames_come_one_a_line(client: Client) -> None:
    reply = await client.generate(n=2, sampling={"temperature": 1.0, "seed": 1, "logprobs": 3})
    assert [reply.finish(index).reason for index in range(2)] == ["length", "length"]
    assert (reply.end.prompt_tokens, reply.end.completion_tokens) == (50, 8)
    assert all(len(logprob.top) == 3 for logprob in reply.logprobs())
    assert reply.end.timings.prefill_ms > 0


async def test_a_second_request_says_what_was_cached(client: Client) -> None:
    spans = [{"start": 0, "namespace": GLOBEX.hex}]
    first, second = await client.generate(spans=spans), await client.generate(spans=spans)
    assert (first.start.cached.device, second.start.cached.device) == (0, 48)
    assert first.tokens() == second.tokens()


async def test_a_grammar_constrains_the_reply(client: Client) -> None:
    reply = await client.generate(grammar='start: "yes" | "no"', sampling={"max_tokens": 9})
    assert reply.text() in ("yes", "no")
    assert reply.finish().reason == "stop"


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"tokens": [5] * 4096}, "context", "tokens"),
        ({"tokens": [5, 100_000]}, "bad_request", "tokens"),
        ({"sampling": {"logit_bias": {"99999": 1.0}}}, "bad_request", "sampling.logit_bias"),
        ({"sampling": {"stop_ids": [99999]}}, "bad_request", "sampling.stop_ids"),
        ({"n": 5}, "bad_request", "n"),
        ({"spans": [{"start": 16, "namespace": ACME.hex}]}, "bad_request", "spans"),
        ({"spans": [{"start": 0, "namespace": ACME.hex}] * 2}, "bad_request", "spans"),
        ({"spans": [{"start": start, "namespace": ACME.hex} for start in (0, 8)]}, "bad_request", "spans"),
        ({"spans": [{"start": 0, "namespace": "z" * 64}]}, "bad_request", "spans"),
        ({"grammar": "start: missing"}, "grammar", "grammar"),
    ],
)
async def test_a_request_that_cannot_run_is_refused_with_the_field(
    client: Client, changes: dict[str, Any], code: str, param: str
) -> None:
    assert (await client.post("/generate", body(**changes))).error == (400, code, param)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"tokens": []}, "$.tokens"),
        ({"tokens": [-1]}, "$.tokens[0]"),
        ({"tokens": "salt"}, "$.tokens"),
        ({"spans": []}, "$.spans"),
        ({"n": 0}, "$.n"),
        ({"n": 17}, "$.n"),
        ({"deadline_ms": 0}, "$.deadline_ms"),
        ({"request_id": ""}, "$.request_id"),
        ({"sampling": {"max_tokens": 0}}, "$.sampling.max_tokens"),
        ({"sampling": {"temperature": 3}}, "$.sampling.temperature"),
        ({"sampling": {"top_p": 0}}, "$.sampling.top_p"),
        ({"sampling": {"logprobs": 21}}, "$.sampling.logprobs"),
        ({"sampling": {"stop": [""]}}, "$.sampling.stop[0]"),
        ({"sampling": {"stop": ["x"] * 17}}, "$.sampling.stop"),
        ({"sampling": {"logit_bias": {"salt": 1.0}}}, "$.sampling.logit_bias"),
    ],
)
async def test_a_value_out_of_bounds_is_refused_with_its_path(
    client: Client, changes: dict[str, Any], field: str
) -> None:
    answer = await client.post("/generate", body(**changes))
    assert answer.error == (400, "bad_request", None)
    assert f"`{field}`" in answer.json["error"]["message"]


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b"[" * 100_000, b'{"request_id": "\xff"}'])
@pytest.mark.parametrize("path", ["/generate", "/abort", "/release", "/retain"])
async def test_a_body_that_is_no_request_is_refused(client: Client, path: str, raw: bytes) -> None:
    assert (await client.ask("POST", path, data=raw)).error == (400, "bad_request", None)


async def test_a_body_beyond_the_bound_is_refused(client: Client) -> None:
    answer = await client.ask("POST", "/abort", data=BytesIO(bytes((32 << 20) + 1)))
    assert answer.error == (413, "bad_request", None)


async def test_a_client_that_leaves_has_its_request_aborted(client: Client) -> None:
    aborted = await client.metric("saltway_worker_aborted")
    for _ in range(3):
        async with client.stream():
            pass
        await client.until_idle()
    assert await client.metric("saltway_worker_aborted") == aborted + 3


async def test_abort_ends_a_stream_with_its_last_frames(client: Client) -> None:
    async with client.stream(request_id="one") as frames:
        assert (await client.post("/abort", {"request_id": "one"})).json == {"aborted": True}
        *_, finish, end = reply_of(await frames.read()).frames
    assert isinstance(finish, Finish)
    assert isinstance(end, End)
    assert (finish.reason, finish.completion_tokens) == ("abort", end.completion_tokens)
    assert (await client.post("/abort", {"request_id": "one"})).json == {"aborted": False}


async def test_a_running_id_is_refused_and_can_be_used_again_later(client: Client) -> None:
    async with client.stream(request_id="twice"):
        assert (await client.post("/generate", body(request_id="twice"))).error == (409, "duplicate", "request_id")
    await client.until_idle()
    await client.generate(request_id="twice")


async def test_a_deadline_ends_a_stream(client: Client) -> None:
    reply = await client.generate(deadline_ms=20, sampling={"max_tokens": 4000})
    assert reply.finish().reason == "deadline"


async def test_release_answers_how_many_blocks_it_found(client: Client) -> None:
    spans = [{"start": 0, "namespace": "7f" * 32}]
    await client.generate(spans=spans)
    assert (await client.post("/release", {"tokens": PROMPT, "spans": spans})).json == {"released_blocks": 3}
    answer = await client.post("/release", {"tokens": PROMPT, "spans": [{"start": 3, "namespace": ACME.hex}]})
    assert answer.error == (400, "bad_request", "spans")


async def test_a_session_is_released_without_its_prefix_and_nothing_at_all_is_not(client: Client) -> None:
    spans = [{"start": 0, "namespace": "7e" * 32}]
    lease = {"ranges": [{"priority": 70, "ttl_ms": 60_000}], "session": "agent"}
    await client.generate(spans=spans, tag="ending", retention=lease)
    leased = b'saltway_worker_leased_blocks{tag="ending",tier="device"} '
    assert leased + b"3.0" in (await client.get("/metrics")).body
    assert (await client.post("/release", {"tag": "ending", "session": "agent"})).json == {"released_blocks": 0}
    assert leased + b"0.0" in (await client.get("/metrics")).body
    assert (await client.post("/release", {"tag": "ending"})).error == (400, "bad_request", None)
    assert (await client.post("/release", {"tokens": PROMPT, "spans": []})).error == (400, "bad_request", "spans")


async def test_retain_answers_how_many_blocks_it_found(client: Client) -> None:
    spans = [{"start": 0, "namespace": "6f" * 32}]
    lease = {"ranges": [{"priority": 70, "ttl_ms": 1000}], "session": "agent"}
    asked = {"tokens": PROMPT, "spans": spans, "tag": "acme", "retention": lease}
    assert (await client.post("/retain", asked)).json == {"retained_blocks": 0}
    await client.generate(spans=spans)
    assert (await client.post("/retain", asked)).json == {"retained_blocks": 3}
    assert (await client.post("/retain", asked)).json == {"retained_blocks": 3}
    answer = await client.post("/retain", asked | {"spans": [{"start": 3, "namespace": ACME.hex}]})
    assert answer.error == (400, "bad_request", "spans")


async def test_a_snapshot_is_what_the_events_up_to_its_mark_tell(client: Client) -> None:
    for number in range(3):
        await client.generate(tokens=[*PROMPT, *[90 + number] * 40])
    snapshot = decode_snapshot((await client.get("/kv/snapshot")).body)
    load = await client.load()
    assert (snapshot.epoch, snapshot.block_size) == (load.epoch, 16)
    assert len(list(snapshot.blocks)) == load.total_blocks - load.free_blocks
    events = await events_until(load.replay, snapshot.seq, load.epoch)
    assert replayed(events) == listed(snapshot.blocks)


async def events_until(replay: str, last: int, epoch: int) -> list[Event]:
    """All events from the start of the worker to the message with the number `last`, once that has been sent."""
    heard = NO_SEQ
    while heard < last:
        events: list[Event] = []
        async for message in replay_of(replay):
            heard, batch = message.seq, decode_batch(message.payload)
            assert batch.epoch == epoch
            if message.seq <= last:
                events += batch.events
    return events


async def replay_of(address: str) -> AsyncIterator[Message]:
    """What the publisher has sent so far; behind that, a message may still wait for it."""
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.connect(address)
        await socket.send_multipart(encode_replay_request(0))
        while (message := decode_replay(await socket.recv_multipart())) is not None:
            yield message


async def test_metrics_count_what_was_asked_cached_and_made(client: Client) -> None:
    names = [f"saltway_worker_{name}" for name in ("requests", "prompt_tokens", "cached_tokens", "generated_tokens")]
    before = [await client.metric(name) for name in names]
    reply = await client.generate()
    after = [await client.metric(name) for name in names]
    assert [new - old for new, old in zip(after, before, strict=True)] == [1, 50, reply.start.cached.device, 4]
    assert await client.metric("saltway_worker_free_blocks") == (await client.load()).free_blocks


async def test_after_all_of_this_nothing_is_leaked(client: Client, live: LiveWorker) -> None:
    await client.until_idle()
    engine = live.process._engine
    assert engine.memory.slots.free == engine.memory.slots.total == 4
    await asyncio.wrap_future(engine.call(engine.memory.check))
    assert not live.process._app._queues


@pytest.mark.parametrize("state", ["starting", "draining"])
async def test_a_worker_that_is_not_ready_takes_nothing(live: LiveWorker, client: Client, state: str) -> None:
    live.process._service.state = state
    assert (await client.get("/ready")).status == 503
    assert (await client.post("/generate", body())).error == (503, state, None)
    assert (await client.load()).state == state
    live.process._service.state = "ready"


async def test_a_worker_over_pages_has_the_context_that_its_blocks_allow_and_serves_hits(
    tiny_path: Path, tmp_path: Path
) -> None:
    with LiveWorker(tiny_path, tmp_path, "--kv-layout", "paged", "--blocks", "20") as live:
        async with Client(live.url) as client:
            assert live.process._service.info.context_length == 20 * 16
            cold, warm = await client.generate(), await client.generate()
            assert (cold.start.cached.device, warm.start.cached.device) == (0, 48)
            assert warm.tokens() == cold.tokens()


@pytest.mark.parametrize("layout", ["slots", "paged"])
async def test_a_worker_names_the_codes_that_it_keeps_kv_as_and_counts_their_bytes(
    layout: str, tiny_path: Path, tmp_path: Path
) -> None:
    with LiveWorker(tiny_path, tmp_path, "--kv-dtype", "fp8", "--kv-layout", layout, "--blocks", "32") as live:
        async with Client(live.url) as client:
            info = msgspec.json.decode((await client.get("/model")).body, type=ModelInfo)
            assert info.kv_dtype == "fp8"
            await client.generate()
            assert (await client.generate()).start.cached.device == 48
            metrics = (await client.get("/metrics")).body.decode()
            assert f'kv_capacity_bytes{{tier="device"}} {32 * 16 * 2 * 3 * 2 * (16 + 2):.1f}' in metrics


async def test_a_full_queue_is_refused_as_overloaded(tiny_path: Path, tmp_path: Path) -> None:
    with LiveWorker(tiny_path, tmp_path, "--slots", "1", "--max-waiting", "1") as live:
        async with Client(live.url) as client, client.stream(request_id="a"):
            waiting = asyncio.create_task(client.generate(request_id="b"))
            await client.until_waiting()
            assert (await client.post("/generate", body(request_id="c"))).error == (503, "overloaded", None)
            await client.post("/abort", {"request_id": "a"})
            assert (await waiting).finish().reason == "length"


async def test_when_the_engine_crashes_streams_end_with_an_error_and_the_process_with_it(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ArithmeticError("what a prompt said")

    with capture_logs() as logs, LiveWorker(tiny_path, tmp_path) as live:
        async with Client(live.url) as client, client.stream() as frames:
            monkeypatch.setattr(live.process._engine._model, "forward", broken)
            *_, last = reply_of(await frames.read()).frames
            assert last == ErrorFrame("internal", "the engine has stopped")
        await asyncio.to_thread(live.wait)
    assert isinstance(live.process.crashed, ArithmeticError)
    assert [(log["event"], log.get("error")) for log in logs] == [
        ("loaded", None),
        ("engine crashed", "ArithmeticError"),
    ]
    assert "what a prompt said" not in str(logs)


async def test_a_request_that_crashes_the_engine_at_once_ends_with_an_error_too(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ArithmeticError

    with LiveWorker(tiny_path, tmp_path) as live:
        monkeypatch.setattr(live.process._engine._model, "forward", broken)
        async with Client(live.url) as client:
            answer = await client.post("/generate", body())
        assert reply_of(answer.body).frames[-1] == ErrorFrame("internal", "the engine has stopped")
        await asyncio.to_thread(live.wait)
