import itertools
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tools.hermes import CallArguments, CallEnd, CallStart, Event, HermesParser, Text, new_call_id

ONE = '<tool_call>\n{"name": "f", "arguments": {"x": "1"}}\n</tool_call>'
TWO = ONE + '\n<tool_call>\n{"name": "g", "arguments": {"y": {"z": "}]\\"</tool_call>"}}}\n</tool_call>'

Folded = tuple[str, list[tuple[str, str, bool]]]


def run(pieces: Iterable[str], limit: int | None = None) -> list[Event]:
    ids = (f"call_{number}" for number in itertools.count())
    parser = HermesParser(limit=limit, new_id=lambda: next(ids))
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.finish()


def fold(events: Sequence[Event]) -> Folded:
    """All text, and name, arguments and whether it ended of each call; checks the order of a call's events."""
    text, calls = "", list[tuple[str, str, bool]]()
    for event in events:
        match event:
            case Text():
                text += event.text
            case CallStart():
                assert event.index == len(calls)
                calls.append((event.name, "", False))
            case CallArguments() | CallEnd():
                assert event.index == len(calls) - 1
                name, arguments, ended = calls[-1]
                assert not ended
                piece = event.piece if isinstance(event, CallArguments) else ""
                calls[-1] = name, arguments + piece, isinstance(event, CallEnd)
    return text, calls


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain text", ("plain text", [])),
        ("", ("", [])),
        (ONE, ("", [("f", '{"x": "1"}', True)])),
        (TWO, ("", [("f", '{"x": "1"}', True), ("g", '{"y": {"z": "}]\\"</tool_call>"}}', True)])),
        ("I look.\n" + ONE, ("I look.", [("f", '{"x": "1"}', True)])),
        ("I look.\n\n" + ONE + "\n", ("I look.\n", [("f", '{"x": "1"}', True)])),
        (ONE + "\nDone.", ("\nDone.", [("f", '{"x": "1"}', True)])),
        ("ok <tool_ca", ("ok <tool_ca", [])),
        ("a < b and <tool>", ("a < b and <tool>", [])),
        ("<tool_call>not json</tool_call> x", ("<tool_call>not json</tool_call> x", [])),
        ("a\n<tool_call>[1]</tool_call>", ("a\n<tool_call>[1]</tool_call>", [])),
        ('<tool_call>\n{"name": "f', ('<tool_call>\n{"name": "f', [])),
        ('<tool_call>{"name": "f", "arguments": {"x": "par', ("", [("f", '{"x": "par', True)])),
        ('<tool_call>{"name": "f", "arguments": {}}', ("", [("f", "{}", True)])),
        ('<tool_call>{"arguments": {"x": 1}, "name": "f"}</tool_call>', ("", [("f", '{"x": 1}', True)])),
        ('<tool_call>{"name": "f"}</tool_call>', ("", [("f", "{}", True)])),
        ('<tool_call>{"name": "f", "arguments": "{\\"x\\": 1}"}</tool_call>', ("", [("f", '{"x": 1}', True)])),
        (
            '<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>',
            ('<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>', []),
        ),
        ('<tool_call>{"name": "' + "f" * 600, ('<tool_call>{"name": "' + "f" * 600, [])),
    ],
)
def test_text_is_read_as_calls(text: str, expected: Folded) -> None:
    assert fold(run([text])) == expected
    assert fold(run(text)) == expected


def test_arguments_stream_while_they_are_written() -> None:
    parser = HermesParser(new_id=lambda: "call_0")
    assert parser.feed('<tool_call>\n{"name": "f", "arguments": ') == []
    assert parser.feed('{"x": "a') == [CallStart(0, "call_0", "f"), CallArguments(0, '{"x": "a')]
    assert parser.feed("b") == [CallArguments(0, "b")]
    assert parser.feed('"}}\n</tool') == [CallArguments(0, '"}')]
    assert parser.feed("_call>") == [CallEnd(0)]
    assert parser.finish() == []


def test_only_what_may_begin_a_call_is_held_back() -> None:
    parser = HermesParser()
    assert parser.feed("I see\n<tool") == [Text("I see")]
    assert parser.feed("box>") == [Text("\n<toolbox>")]


@pytest.mark.parametrize("text", ["<tool_call>", '<tool_call>\n{"name": "f', '<tool_call>{"arguments": {"x": 1}'])
def test_a_call_that_was_cut_before_its_arguments_is_no_text(text: str) -> None:
    parser = HermesParser()
    assert fold([*parser.feed("I look.\n" + text), *parser.finish(cut=True)]) == ("I look.", [])


@pytest.mark.parametrize("end", ["", "<", "<tool", "<tool_call"])
def test_an_opener_that_was_cut_where_nothing_else_may_come_is_no_text(end: str) -> None:
    bound = HermesParser(bound=True)
    assert fold([*bound.feed(end), *bound.finish(cut=True)]) == ("", [])
    behind = HermesParser()
    assert fold([*behind.feed(f"{ONE}\n{end}"), *behind.finish(cut=True)]) == fold(run([ONE]))


def test_what_may_have_become_a_call_is_text_when_it_was_cut_too() -> None:
    parser = HermesParser()
    assert fold([*parser.feed("a <tool"), *parser.finish(cut=True)]) == ("a <tool", [])


def test_past_its_limit_everything_is_dropped() -> None:
    assert fold(run([TWO + "more"], limit=1)) == ("", [("f", '{"x": "1"}', True)])
    assert fold(run(TWO + "more", limit=1)) == ("", [("f", '{"x": "1"}', True)])


_BITS = [
    "<tool_call>",
    "</tool_call>",
    '{"name": "f", "arguments": ',
    '{"x": "1"}',
    "}",
    '"',
    "\\",
    "\n",
    " ",
    "text",
    "<tool",
    "{",
    "]",
    "null",
    ONE,
]


@settings(deadline=None)
@given(st.lists(st.sampled_from(_BITS), max_size=12).map("".join), st.data(), st.none() | st.integers(0, 2))
def test_no_way_of_cutting_changes_what_is_read(text: str, data: st.DataObject, limit: int | None) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[start:end] for start, end in itertools.pairwise([0, *cuts, len(text)])]
    assert fold(run(pieces, limit)) == fold(run([text], limit)) == fold(run(text, limit))


@settings(deadline=None)
@given(st.text(alphabet="<tol_ca/>\n x", max_size=40).filter(lambda text: "<tool_call>" not in text))
def test_text_without_an_opener_comes_through_whole(text: str) -> None:
    assert fold(run(text)) == (text, [])


def test_call_ids_have_openais_length() -> None:
    assert len(new_call_id()) == len("call_") + 24
    assert new_call_id() != new_call_id()
