"""What the fairness figures are worked out from."""

from hypothesis import given
from hypothesis import strategies as st

from bench.client import Reply
from bench.fairness import figures_of, p99


def reply(ttft_ms: float, *, total_ms: float = 0.0, prompt: int = 100, completion: int = 4) -> Reply:
    return Reply("w0", 0, prompt=prompt, completion=completion, ttft_ms=ttft_ms, total_ms=total_ms)


def test_p99_is_the_nearest_rank_and_of_few_values_the_slowest() -> None:
    assert p99([3.0, 1.0, 2.0]) == 3.0
    assert p99([float(value) for value in range(1, 101)]) == 99.0
    assert p99([float(value) for value in range(1, 201)]) == 198.0


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_at_most_one_in_a_hundred_is_slower(values: list[float]) -> None:
    assert p99(values) in values
    assert sum(value > p99(values) for value in values) <= len(values) // 100


def test_the_ratio_is_that_of_the_tenant_beside_a_burst_to_itself_alone() -> None:
    quiet, burst = [reply(100.0)] * 3, [reply(100.0), reply(150.0), reply(180.0)]
    figures = figures_of(quiet, burst, [reply(900.0, prompt=1000, completion=48)], 10.0)
    assert (figures["p99_ttft_quiet_ms"], figures["p99_ttft_burst_ms"], figures["ratio"]) == (100.0, 180.0, 1.8)
    assert (figures["p50_ttft_burst_ms"], figures["ratio_p50"]) == (150.0, 1.5)
    assert (figures["long_requests"], figures["long_prompt_tokens"], figures["long_tokens_per_s"]) == (1, 1000, 104.8)


def test_a_reply_without_text_counts_by_its_end() -> None:
    figures = figures_of([reply(0.0, total_ms=70.0)], [reply(0.0, total_ms=140.0)], [], 1.0)
    assert (figures["p99_ttft_quiet_ms"], figures["ratio"], figures["long_prompt_tokens"]) == (70.0, 2.0, 0)
