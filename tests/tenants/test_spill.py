from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenants.spill import Spill
from tests.tenants.rows import row


def test_no_file_holds_no_rows(tmp_path: Path) -> None:
    assert Spill(tmp_path / "spill").read() == []


@given(st.lists(st.text()))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.mktemp("spill") / "spill"
    rows = [row(str(number), placement_reason=text) for number, text in enumerate(texts)]
    Spill(path).write(rows)
    assert Spill(path).read() == rows


def test_writing_again_adds_and_clearing_empties(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "spill")
    spill.write([row("a")])
    spill.write([row("b", ttft_ms=1.5, streamed=True)])
    assert [(kept.request_id, kept.ttft_ms, kept.streamed) for kept in spill.read()] == [
        ("a", None, False),
        ("b", 1.5, True),
    ]
    spill.clear()
    assert spill.read() == []


def test_a_line_cut_short_by_a_crash_is_left_out(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "spill")
    spill.write([row("a"), row("b")])
    spill.path.write_text(spill.path.read_text()[:-20])
    assert [kept.request_id for kept in spill.read()] == ["a"]


def test_what_follows_a_line_cut_short_is_kept(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "spill")
    spill.write([row("a"), row("b")])
    spill.path.write_bytes(spill.path.read_bytes()[:-20] + b"\xff")
    spill.write([row("c")])
    assert [kept.request_id for kept in spill.read()] == ["a", "c"]


def test_the_folder_is_made_where_there_is_none(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "home" / "spill")
    spill.write([row("a")])
    assert len(spill.read()) == 1
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    Spill(tmp_path / "spill").write([row("a")])
    assert (tmp_path / "spill").stat().st_mode & 0o777 == 0o600
