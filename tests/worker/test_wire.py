"""The worker's wire as a gateway reads it, and its bounds."""

import json
from typing import Any

import msgspec
import pytest

from tests.worker.rig import ACME
from worker.wire import (
    Cached,
    Delta,
    End,
    ErrorFrame,
    Finish,
    Frame,
    GenerateRequest,
    Occupancy,
    Sampling,
    Start,
    Timings,
    TokenLogprob,
    WorkerError,
)

FRAMES: list[tuple[Frame, dict[str, Any]]] = [
    (
        Start(5, Cached(device=4), 1.5),
        {
            "type": "start",
            "prompt_tokens": 5,
            "cached": {"device": 4, "host": 0, "disk": 0, "partial": 0},
            "queue_ms": 1.5,
        },
    ),
    (Delta(0, "a", [7]), {"type": "delta", "index": 0, "text": "a", "tokens": [7], "logprobs": None}),
    (
        Delta(1, "a", [7], [TokenLogprob(7, -0.5, [(7, -0.5), (8, -2.0)])]),
        {
            "type": "delta",
            "index": 1,
            "text": "a",
            "tokens": [7],
            "logprobs": [{"token": 7, "logprob": -0.5, "top": [[7, -0.5], [8, -2.0]]}],
        },
    ),
    (
        Finish(0, "stop", 3, "END"),
        {"type": "finish", "index": 0, "reason": "stop", "completion_tokens": 3, "stop": "END"},
    ),
    (
        End(5, 3, Timings(1.0, 2.0, 3.0), Occupancy(1, 2, 3, 4, 5)),
        {
            "type": "end",
            "prompt_tokens": 5,
            "completion_tokens": 3,
            "timings": {"queue_ms": 1.0, "prefill_ms": 2.0, "decode_ms": 3.0},
            "load": {
                "waiting": 1,
                "running": 2,
                "queued_prefill_tokens": 3,
                "decode_sequences": 4,
                "free_blocks": 5,
            },
        },
    ),
    (ErrorFrame("internal", "why"), {"type": "error", "code": "internal", "message": "why"}),
]


@pytest.mark.parametrize(("frame", "spelled"), FRAMES)
def test_a_frame_is_spelled_as_the_contract_says(frame: Frame, spelled: dict[str, Any]) -> None:
    raw = msgspec.json.encode(frame)
    assert json.loads(raw) == spelled
    assert msgspec.json.decode(raw, type=Frame) == frame


def test_a_request_needs_little_and_defaults_to_the_neutral() -> None:
    spelled = {"request_id": "r", "tokens": [1], "spans": [{"start": 0, "namespace": ACME.hex}]}
    raw = json.dumps(spelled | {"sampling": {"max_tokens": 1}})
    request = msgspec.json.decode(raw, type=GenerateRequest)
    assert (request.n, request.store, request.grammar, request.tag) == (1, True, None, "")
    assert request.priority == 50
    assert request.sampling == Sampling(max_tokens=1)
    assert (request.sampling.temperature, request.sampling.top_p, request.sampling.top_k) == (1.0, 1.0, 0)


@pytest.mark.parametrize("missing", ["request_id", "tokens", "spans", "sampling"])
def test_a_missing_field_is_named(missing: str) -> None:
    spelled = {
        "request_id": "r",
        "tokens": [1],
        "spans": [{"start": 0, "namespace": ACME.hex}],
        "sampling": {"max_tokens": 1},
    }
    del spelled[missing]
    with pytest.raises(msgspec.ValidationError, match=missing):
        msgspec.json.decode(json.dumps(spelled), type=GenerateRequest)


@pytest.mark.parametrize("priority", [-1, 101, "high"])
def test_a_priority_is_from_0_to_100(priority: int | str) -> None:
    spelled = {"request_id": "r", "tokens": [1], "spans": [{"start": 0, "namespace": ACME.hex}], "priority": priority}
    with pytest.raises(msgspec.ValidationError, match="priority"):
        msgspec.json.decode(json.dumps(spelled | {"sampling": {"max_tokens": 1}}), type=GenerateRequest)


def test_an_error_is_spelled_as_the_contract_says() -> None:
    error = WorkerError(400, "context", "too long", "tokens")
    assert json.loads(error.body()) == {"error": {"code": "context", "message": "too long", "param": "tokens"}}
