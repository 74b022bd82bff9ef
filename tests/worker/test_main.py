"""The process as an operator meets it: one sentence when it cannot start, JSON logs when it can."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import torch

from gateway.up.ports import free_ports
from tests.worker.live import TOKEN
from tests.worker.tiny import metadata, tensors, vocabulary, write_gguf
from worker.__main__ import main
from worker.kv.folder import BlockFolder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    (tmp_path / "token").write_text(TOKEN)
    return ["--port", "0", "--token-file", str(tmp_path / "token"), "--threads", "1", "--device", "cpu"]


def sentence(code: int, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr of a worker that could not start."""
    assert code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("worker: ")
    return line


def test_a_missing_model_is_one_sentence(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "/nowhere.gguf" in sentence(main([*flags, "--model", "/nowhere.gguf"]), capsys)


def test_a_file_that_is_no_model_is_one_sentence(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "not a GGUF file" in sentence(main([*flags, "--model", __file__]), capsys)


def test_another_architecture_is_one_sentence(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_gguf(tmp_path / "m", metadata() | {"general.architecture": "mamba"}, tensors())
    assert "'mamba' is not supported" in sentence(main([*flags, "--model", str(path)]), capsys)


def test_a_dtype_that_the_processor_lacks_is_one_sentence(
    flags: list[str], tiny_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    code = main([*flags, "--model", str(tiny_path), "--dtype", "bfloat16"])
    assert "--dtype bfloat16 needs" in sentence(code, capsys)


def test_a_bad_flag_is_one_sentence(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "--block-size" in sentence(main([*flags, "--model", "m", "--block-size", "3"]), capsys)


def test_a_disk_folder_of_another_worker_is_one_sentence(
    flags: list[str], tiny_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = BlockFolder(tmp_path / "kv")
    folder.prepare()
    disk = ["--disk-mib", "1", "--disk-folder", str(folder.path)]
    line = sentence(main([*flags, "--model", str(tiny_path), *disk]), capsys)
    assert line == f"worker: --disk-folder: another worker uses {folder.path}: name a folder for each"
    folder.leave()


def test_a_draft_model_of_other_tokens_is_one_sentence(
    flags: list[str], tiny_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = vocabulary()
    names[40], names[41] = names[41], names[40]
    path = write_gguf(tmp_path / "m.gguf", metadata() | {"tokenizer.ggml.tokens": names}, tensors())
    line = sentence(main([*flags, "--model", str(tiny_path), "--draft-model", str(path)]), capsys)
    assert line.endswith("m.gguf has other tokens than --model: token 40 is b'F' here and b'G' there")


def test_a_running_worker_logs_json_and_stops_when_told(tiny_path: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "worker", "--port", str(port), "--token-file", str(tmp_path / "token")]
    command += ["--threads", "1", "--device", "cpu", "--model", str(tiny_path), "--name", "tiny"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        loaded = json.loads(process.stderr.readline())
        while not answers(port):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        (stopped,) = map(json.loads, process.stderr.read().splitlines())
    assert process.returncode == 0
    assert (loaded["event"], loaded["worker"], loaded["model"], loaded["level"]) == ("loaded", "w0", "tiny", "info")
    assert (stopped["event"], stopped["kept_blocks"]) == ("stopped", 0)


def answers(port: int) -> bool:
    """Whether the worker's health can be asked for."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/health") as response:
            return bool(response.status == 200)
    except URLError:
        time.sleep(0.02)
        return False
