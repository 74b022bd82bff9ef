import msgspec
import pytest

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

LINES: list[tuple[str, Frame]] = [
    (
        '{"type":"start","prompt_tokens":9,"cached":{"device":4,"host":2,"disk":1},"queue_ms":0.5}',
        StartFrame(9, Cached(4, 2, 1), 0.5),
    ),
    (
        '{"type":"delta","index":1,"text":"a","tokens":[7],"logprobs":[{"token":7,"logprob":-0.5,"top":[[7,-0.5]]}]}',
        DeltaFrame(1, "a", [7], [TokenLogprob(7, -0.5, [(7, -0.5)])]),
    ),
    ('{"type":"delta","index":0,"text":"b","tokens":[8],"logprobs":null}', DeltaFrame(0, "b", [8])),
    (
        '{"type":"finish","index":0,"reason":"stop","stop":"END","completion_tokens":3}',
        FinishFrame(0, "stop", "END", 3),
    ),
    (
        '{"type":"end","prompt_tokens":9,"completion_tokens":3,"timings":{"queue_ms":1,"prefill_ms":2,"decode_ms":3}}',
        EndFrame(9, 3, Timings(1.0, 2.0, 3.0)),
    ),
    ('{"type":"error","code":"internal","message":"x"}', ErrorFrame("internal", "x")),
]


@pytest.mark.parametrize(("line", "frame"), LINES)
def test_a_line_is_one_frame(line: str, frame: Frame) -> None:
    assert msgspec.json.decode(line, type=Frame) == frame


def test_cached_tokens_of_all_tiers_count() -> None:
    assert Cached(4, 2, 1).total == 7
