"""The verdict of a soak: what counts as growth, and what is noise."""

from typing import Any

import pytest

from bench.soak import grown


def samples(count: int = 60, **values: Any) -> list[dict[str, dict[str, float]]]:
    """One process; a value is a constant or a function of the sample's number."""
    steady = {"rss_mib": 500.0, "threads": 20.0, "descriptors": 40.0, "kv_files": 80.0, "tasks": 12.0} | values
    return [
        {"w0": {what: value(number) if callable(value) else value for what, value in steady.items()}}
        for number in range(count)
    ]


def test_what_stays_as_it_is_has_not_grown() -> None:
    assert grown(samples()) == []


@pytest.mark.parametrize(
    ("what", "step", "said"),
    [
        ("rss_mib", 10.0, "w0 rss_mib: 845 -> 1045"),
        ("threads", 1.0, "w0 threads: 54 -> 74"),
        ("descriptors", 1.0, "w0 descriptors: 74 -> 94"),
        ("kv_files", 5.0, "w0 kv_files: 252 -> 352"),
        ("tasks", 1.0, "w0 tasks: 46 -> 66"),
    ],
)
def test_what_goes_up_all_the_time_has(what: str, step: float, said: str) -> None:
    base = samples(1)[0]["w0"][what]
    rising: dict[str, Any] = {what: lambda number: base + step * number}
    assert grown(samples(60, **rising)) == [said]


def test_what_fills_in_the_first_half_has_not() -> None:
    assert grown(samples(kv_files=lambda number: min(3.0 * number, 75.0))) == []


def test_a_peak_at_the_very_end_is_noise() -> None:
    assert grown(samples(rss_mib=lambda number: 2000.0 if number > 57 else 500.0)) == []


def test_a_run_too_short_to_judge_says_so() -> None:
    with pytest.raises(ValueError, match="samples"):
        grown(samples(count=5))
