"""How the engine's figures are put together; the figures themselves are in docs/benchmarks.md."""

import pytest
import torch

from bench.engine import _medians, _ratios
from bench.peers import Timed
from bench.quality import _compare


def test_figures_are_medians_over_rounds() -> None:
    runs = [{"decode_tps": {"1": value}} for value in (5.0, 1.0, 3.0)]
    assert _medians(runs) == {"decode_tps": {"1": 3.0}}


def test_a_ratio_above_one_is_better_for_us_whichever_way_a_figure_goes() -> None:
    ours = {"decode_tps": {"8": 30.0}, "ttft_warm_ms": {"1500": 20.0}, "constraint_ratio": {"1": 1.0}}
    theirs = {"decode_tps": {"8": 20.0}, "ttft_warm_ms": {"1500": 50.0}}
    assert _ratios(ours, theirs) == {"decode_tps": {"8": 1.5}, "ttft_warm_ms": {"1500": 2.5}}


def test_a_reply_is_timed_from_when_it_was_asked_for() -> None:
    timed = Timed(10.0, [10.5, 11.0, 13.0])
    assert (timed.ttft, timed.seconds) == (0.5, 3.0)


def test_a_model_is_at_no_distance_from_itself_and_at_some_from_another() -> None:
    window, even = [0, 1, 2], torch.full((3, 4), 0.25).log()
    same = _compare([window], [even], [even])
    assert (same["perplexity"], same["kl"], same["same_top"]) == (4.0, 0.0, 1.0)
    sharp = torch.tensor([0.7, 0.1, 0.1, 0.1]).log().expand(3, 4)
    other = _compare([window], [even], [sharp])
    assert other["kl"] == pytest.approx(float((even.exp() * (even - sharp)).sum(-1).mean()), abs=1e-5)
    assert other["perplexity"] == 10.0
