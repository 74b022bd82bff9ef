"""Tables line up, and figures are kept as they were printed."""

import json
from pathlib import Path

import pytest

from bench import report
from bench.report import machine, save, table


def test_a_table_aligns_its_first_column_left_and_figures_right() -> None:
    assert table(["name", "ms"], [["a", 5], ["longer", 1234]]).split("\n") == [
        "name      ms",
        "------  ----",
        "a          5",
        "longer  1234",
    ]


def test_figures_are_saved_as_json_under_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    path = save("cliff", {"hit_rate": 0.5})
    assert path == tmp_path / "results" / "cliff.json"
    assert json.loads(path.read_text()) == {"hit_rate": 0.5}


def test_the_conditions_name_the_machine() -> None:
    conditions = machine()
    assert conditions["cores"] >= 1
    assert conditions["processor"]
    assert len(conditions["load_average"]) == 3
