"""Tables line up, and figures are kept as they were printed."""

import json
from pathlib import Path

import pytest

from bench import report
from bench.report import machine, publish, save, table


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


@pytest.mark.parametrize("as_json", [False, True])
def test_standard_output_is_a_table_or_one_json_object(
    as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    publish("cliff", {"hit_rate": 0.5}, "hit rate  0.5", as_json=as_json)
    out, err = capsys.readouterr()
    assert out == ('{"hit_rate": 0.5}\n' if as_json else "hit rate  0.5\n")
    assert f"bench: saved as {tmp_path}/cliff.json\n" in err
    assert ("hit rate  0.5" in err) is as_json


def test_the_conditions_name_the_machine() -> None:
    conditions = machine()
    assert conditions["cores"] >= 1
    assert conditions["processor"]
    assert len(conditions["load_average"]) == 3
