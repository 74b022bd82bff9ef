import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.chat.reading import Reading
from gateway.chat.reply import ChatCollector, ChatStream, ReplyHead
from gateway.chat.request import ChatRequest
from gateway.errors import ApiError, UnavailableError
from gateway.frames import (
    Cached,
    DeltaFrame,
    EndFrame,
    ErrorFrame,
    FinishFrame,
    Frame,
    StartFrame,
    Timings,
    TokenLogprob,
)
from tests.gateway.chat.played import CALL, HEAD, START, TOOLS, frames, ids, request, spelled


def streamed(asked: ChatRequest, played: Iterable[Frame]) -> bytes:
    stream = ChatStream(Reading(asked, spelled, ids()), HEAD)
    return b"".join(stream.feed(frame) for frame in played)


def plain(asked: ChatRequest, played: Iterable[Frame]) -> dict[str, Any]:
    collector = ChatCollector(Reading(asked, spelled, ids()), HEAD)
    for frame in played:
        collector.feed(frame)
    reply: dict[str, Any] = json.loads(collector.reply())
    return reply


def events(data: bytes) -> list[Any]:
    """The frames of a stream, which must end with [DONE], once."""
    *parts, rest = data.split(b"\n\n")
    assert rest == b""
    assert all(part.startswith(b"data: ") and b"\n" not in part for part in parts)
    assert [index for index, part in enumerate(parts) if part == b"data: [DONE]"] == [len(parts) - 1]
    return [json.loads(part.removeprefix(b"data: ")) for part in parts[:-1]]


def folded(data: bytes) -> dict[str, Any]:
    """Join a stream's deltas as a client does, checking its grammar on the way (oracle O4)."""
    chunks = events(data)
    choices: dict[int, dict[str, Any]] = {}
    usage = None
    for chunk in chunks:
        assert (chunk["id"], chunk["created"], chunk["model"]) == (HEAD.id, HEAD.created, HEAD.model)
        assert chunk["object"] == "chat.completion.chunk"
        if "usage" in chunk:
            assert chunk is chunks[-1]
            assert chunk["choices"] == []
            usage = chunk["usage"]
        for piece in chunk["choices"]:
            _fold_choice(choices, piece)
    return {"choices": [choices[index] for index in sorted(choices)], "usage": usage}


def _fold_choice(choices: dict[int, dict[str, Any]], piece: dict[str, Any]) -> None:
    delta, index = piece["delta"], piece["index"]
    if index not in choices:
        assert delta == {"role": "assistant", "content": ""}
        choices[index] = {"content": "", "calls": [], "logprobs": [], "finish": None}
        return
    choice = choices[index]
    assert choice["finish"] is None
    assert "role" not in delta
    assert len(delta) == (0 if piece["finish_reason"] else 1)
    choice["content"] += delta.get("content", "")
    choice["logprobs"] += (piece["logprobs"] or {"content": []})["content"]
    choice["finish"] = piece["finish_reason"]
    for call in delta.get("tool_calls", []):
        if call["index"] == len(choice["calls"]):
            assert set(call) == {"index", "id", "type", "function"}
            choice["calls"].append([call["id"], call["function"]["name"], ""])
        else:
            assert call["index"] == len(choice["calls"]) - 1
            assert set(call) == {"index", "function"}
            assert set(call["function"]) == {"arguments"}
        choice["calls"][-1][2] += call["function"]["arguments"]


def same_as_folded(reply: dict[str, Any]) -> dict[str, Any]:
    """A plain reply in the shape of `folded`."""
    choices = []
    for choice in reply["choices"]:
        message = choice["message"]
        calls = [
            [call["id"], call["function"]["name"], call["function"]["arguments"]]
            for call in message.get("tool_calls", [])
        ]
        logprobs = (choice["logprobs"] or {"content": []})["content"]
        finish = choice["finish_reason"]
        choices.append({"content": message["content"] or "", "calls": calls, "logprobs": logprobs, "finish": finish})
    return {"choices": choices, "usage": reply["usage"]}


_BITS = [
    "Hello",
    " ",
    "\n",
    "é🙂",
    "data: [DONE]\n\n",
    '"',
    "<tool_call>",
    "</tool_call>",
    "<tool",
    CALL,
    "{",
    "}",
    CALL.replace("f", "g", 1),
]
_OUTPUT = st.lists(st.sampled_from(_BITS), max_size=6).map("".join)
_ASKED = st.fixed_dictionaries(
    {},
    optional={
        "tools": st.just(TOOLS),
        "parallel_tool_calls": st.booleans(),
        "logprobs": st.just(True),
        "stream": st.just(True),
    },
)


def cut(text: str, cuts: Sequence[int]) -> list[str]:
    ends = sorted({min(place, len(text)) for place in cuts} | {0, len(text)})
    return [text[start:end] for start, end in itertools.pairwise(ends)]


@settings(deadline=None)
@given(
    _OUTPUT, st.lists(st.integers(0, 300), max_size=9), _ASKED, st.integers(1, 3), st.sampled_from(["stop", "length"])
)
def test_a_stream_folds_to_the_plain_reply(
    text: str, cuts: list[int], fields: dict[str, Any], n: int, reason: str
) -> None:
    asked = request(**fields, n=n, stream_options={"include_usage": True})
    played = frames(cut(text, cuts), n=n, reason=reason, logprobs=asked.logprobs)
    assert folded(streamed(asked, played)) == same_as_folded(plain(asked, played))


@settings(deadline=None)
@given(_OUTPUT, st.lists(st.integers(0, 300), max_size=9), _ASKED)
def test_no_way_of_cutting_the_output_changes_the_reply(text: str, cuts: list[int], fields: dict[str, Any]) -> None:
    asked = request(**fields | {"logprobs": False})

    def said(pieces: Sequence[str]) -> Any:
        return [
            choice["message"] | {"finish": choice["finish_reason"]}
            for choice in plain(asked, frames(pieces))["choices"]
        ]

    assert said(cut(text, cuts)) == said([text]) == said(list(text))


def test_text_streams_as_it_comes() -> None:
    stream = ChatStream(Reading(request(), spelled), HEAD)
    assert stream.feed(START) == b""
    first = stream.feed(DeltaFrame(0, 'He"', [1]))
    base = (
        b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"smollm2","choices":['
    )
    assert first == (
        base + b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}\n\n'
        + base + b'{"index":0,"delta":{"content":"He\\""},"logprobs":null,"finish_reason":null}]}\n\n'
    )  # fmt: skip
    assert stream.feed(DeltaFrame(0, "", [2])) == b""
    finish = stream.feed(FinishFrame(0, "stop", None, 2))
    assert finish == base + b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}\n\n'
    assert stream.feed(EndFrame(20, 2, Timings())) == b"data: [DONE]\n\n"
    assert (stream.closed, stream.usage.completion_tokens, stream.finish_reasons) == (True, 2, ["stop"])


def test_usage_comes_last_and_only_when_asked_for() -> None:
    played = frames(["a", "b", "c"])
    asked = request(stream=True, stream_options={"include_usage": True})
    usage = {
        "prompt_tokens": 20,
        "completion_tokens": 3,
        "total_tokens": 23,
        "prompt_tokens_details": {"cached_tokens": 16},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    assert folded(streamed(asked, played))["usage"] == usage
    assert plain(request(), played)["usage"] == usage
    for silent in (request(stream=True), request(stream=True, stream_options={"include_usage": False})):
        assert folded(streamed(silent, played))["usage"] is None


def test_a_cold_prompt_reports_zero_cached_tokens() -> None:
    played = [StartFrame(20, Cached()), *frames(["a"])[1:]]
    assert plain(request(), played)["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


def test_all_tiers_count_as_cached() -> None:
    played = [StartFrame(20, Cached(8, 4, 2)), *frames(["a"])[1:]]
    assert plain(request(), played)["usage"]["prompt_tokens_details"] == {"cached_tokens": 14}


def test_several_choices_count_the_prompt_once() -> None:
    reply = plain(request(n=3), frames(["a", "b"], n=3))
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert reply["usage"]["prompt_tokens"] == 20
    assert reply["usage"]["completion_tokens"] == 6


@pytest.mark.parametrize(
    ("fields", "text", "reason", "finish", "calls"),
    [
        ({"tools": TOOLS}, "Hi", "stop", "stop", 0),
        ({"tools": TOOLS}, CALL, "stop", "tool_calls", 1),
        ({"tools": TOOLS}, "Hi\n" + CALL + "\n" + CALL, "stop", "tool_calls", 2),
        ({"tools": TOOLS, "tool_choice": "required"}, CALL, "stop", "tool_calls", 1),
        ({"tools": TOOLS, "tool_choice": TOOLS[0]}, CALL, "stop", "stop", 1),
        ({"tools": TOOLS, "tool_choice": "none"}, CALL, "stop", "stop", 0),
        ({}, CALL, "stop", "stop", 0),
        ({"tools": TOOLS, "parallel_tool_calls": False}, CALL + "\n" + CALL, "stop", "tool_calls", 1),
        ({"tools": TOOLS}, CALL[:50], "length", "length", 1),
        ({"tools": TOOLS}, "Hi", "deadline", "length", 0),
        ({}, "", "stop", "stop", 0),
    ],
)
def test_finish_reasons_are_openais(fields: dict[str, Any], text: str, reason: str, finish: str, calls: int) -> None:
    asked = request(**fields)
    for pieces in ([text], list(text)):
        played = frames(pieces, reason=reason)
        choice = same_as_folded(plain(asked, played))["choices"][0]
        assert (choice["finish"], len(choice["calls"])) == (finish, calls)
        assert folded(streamed(asked, played))["choices"] == [choice]


@pytest.mark.parametrize("reason", ["length", "deadline"])
def test_markup_of_a_call_that_a_limit_cut_is_not_shown_as_text(reason: str) -> None:
    said = CALL + "\n" + CALL[:20]
    choice = plain(request(tools=TOOLS), frames(said, reason=reason))["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("length", None)
    assert len(choice["message"]["tool_calls"]) == 1
    assert folded(streamed(request(tools=TOOLS), frames(said, reason=reason)))["choices"][0]["content"] == ""


def test_content_is_null_beside_calls_and_never_a_null_list() -> None:
    message = plain(request(tools=TOOLS), frames([CALL]))["choices"][0]["message"]
    assert message["content"] is None
    assert message["tool_calls"][0] == {
        "id": "call_0",
        "type": "function",
        "function": {"arguments": '{"x": "1"}', "name": "f"},
    }
    assert "tool_calls" not in plain(request(), frames(["a"]))["choices"][0]["message"]


def test_log_probabilities_go_with_the_text() -> None:
    asked = request(logprobs=True, top_logprobs=2)
    choice = plain(asked, frames(["A"], logprobs=True))["choices"][0]
    assert choice["logprobs"]["content"] == [
        {
            "token": "A",
            "logprob": -0.5,
            "bytes": [65],
            "top_logprobs": [
                {"token": "A", "logprob": -0.5, "bytes": [65]},
                {"token": "B", "logprob": -9999.0, "bytes": [66]},
            ],
        }
    ]
    assert (
        plain(request(logprobs=True), frames(["A"], logprobs=True))["choices"][0]["logprobs"]["content"][0][
            "top_logprobs"
        ]
        == []
    )
    assert plain(request(), frames(["A"], logprobs=True))["choices"][0]["logprobs"] is None


def test_half_a_character_is_given_in_bytes() -> None:
    entry = [TokenLogprob(0xE2, -1.0)]
    played = [START, DeltaFrame(0, "", [0xE2], entry), *frames(["x"])[1:]]
    logprob = plain(request(logprobs=True), played)["choices"][0]["logprobs"]["content"][0]
    assert (logprob["token"], logprob["bytes"]) == ("\ufffd", [0xE2])


@pytest.mark.parametrize("code", ["internal", "overloaded"])
def test_an_error_ends_a_stream_with_one_frame(code: str) -> None:
    played: list[Frame] = [
        START,
        DeltaFrame(0, "a", [1]),
        ErrorFrame(code, 'quo"te\nand /srv/path'),
        DeltaFrame(0, "b", [2]),
    ]
    chunks = events(streamed(request(), played))
    assert [set(chunk) for chunk in chunks[-1:]] == [{"error"}]
    assert set(chunks[-1]["error"]) == {"message", "type", "param", "code"}
    assert "/srv" not in json.dumps(chunks[-1])
    assert len(chunks) == 3


def test_a_stream_can_be_failed_from_outside_once() -> None:
    stream = ChatStream(Reading(request(), spelled), HEAD)
    failed = stream.fail(UnavailableError("Busy."))
    assert failed.startswith(b'data: {"error":')
    assert failed.endswith(b"data: [DONE]\n\n")
    assert stream.fail(UnavailableError("Busy.")) == b""
    assert stream.feed(DeltaFrame(0, "a", [1])) == b""


@pytest.mark.parametrize(
    "played",
    [
        [START, ErrorFrame("internal", "x")],
        [START, DeltaFrame(0, "a", [1])],
        [START, FinishFrame(0, "abort", None, 0), EndFrame(1, 0, Timings())],
        [START, EndFrame(1, 0, Timings())],
        [START, DeltaFrame(1, "a", [1])],
        [START, FinishFrame(0, "stop"), DeltaFrame(0, "late", [1])],
    ],
    ids=["error", "cut", "abort", "no finish", "no such choice", "after finish"],
)
def test_frames_that_make_no_reply_are_the_workers_failure(played: list[Frame]) -> None:
    collector = ChatCollector(Reading(request(), spelled), HEAD)

    def collect() -> bytes:
        for frame in played:
            collector.feed(frame)
        return collector.reply()

    with pytest.raises(ApiError) as caught:
        collect()
    assert caught.value.status == 502
    stream = ChatStream(Reading(request(), spelled), HEAD)
    data = b"".join(stream.feed(frame) for frame in played) + stream.fail(UnavailableError("cut"))
    assert [set(chunk) == {"error"} for chunk in events(data)].count(True) == 1


def test_usage_is_known_before_the_end() -> None:
    stream = ChatStream(Reading(request(), spelled), HEAD)
    for frame in (START, DeltaFrame(0, "ab", [1, 2]), DeltaFrame(0, "c", [3])):
        stream.feed(frame)
    assert (stream.usage.prompt_tokens, stream.usage.completion_tokens) == (20, 3)
    assert stream.usage.prompt_tokens_details.cached_tokens == 16


def test_a_model_may_have_any_name() -> None:
    head = ReplyHead(id="x", model="saltway-hole", created=1)
    data = ChatStream(Reading(request(), spelled), head).feed(DeltaFrame(0, "saltway-hole", [1]))
    assert json.loads(data.split(b"\n\n")[1].removeprefix(b"data: "))["model"] == "saltway-hole"
