"""How the C kernels come to be: compiled once, kept, and done without where they can't be had."""

import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kernels.native import compiler


def test_what_was_compiled_is_kept_for_the_next_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiler.load(tmp_path / "kept") is not None
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.suffix == ".so"
    monkeypatch.setattr("subprocess.run", None)
    assert compiler.load(tmp_path / "kept") is not None


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("not a folder")
    assert compiler.load(tmp_path / "kept") is not None


def test_without_a_compiler_there_are_no_kernels_and_a_warning_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with capture_logs() as logs:
        assert compiler.load(tmp_path) is None
    assert "install gcc" in logs[0]["why"]


@pytest.mark.parametrize("script", ["echo it is broken >&2; exit 1", 'echo nothing >"$out"; exit 0'])
def test_a_compiler_that_fails_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    broken = tmp_path / "gcc"
    broken.write_text(f'#!{shutil.which("bash")}\nout="${{@: -1}}"\n{script}\n')
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with capture_logs() as logs:
        assert compiler.load(tmp_path / "kept") is None
    assert logs[0]["log_level"] == "warning"


def test_a_library_for_another_processor_or_of_other_sources_has_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "a.c"
    source.write_text("int a;")
    first = compiler._digest([source], "gcc")
    source.write_text("int b;")
    second = compiler._digest([source], "gcc")
    monkeypatch.setattr(Path, "read_text", lambda _self: "flags: fewer\n")
    assert len({first, second, compiler._digest([source], "gcc")}) == 3
