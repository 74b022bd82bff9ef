import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.up.ports import free_ports

REPOSITORY = Path(__file__).parents[3]
PATIENCE_S = 60.0


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for something that must come, however slow the machine; fails with its name if it never does."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether the process runs; one that ended and was not yet collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


class FakeUp:
    """A running `saltway up` over fake children, watched from outside."""

    def __init__(self, home: Path, worker_mode: str = "good", gateway_mode: str = "good", port: int = 0) -> None:
        self.home = home
        self.port = port or free_ports(1)[0]
        home.mkdir(exist_ok=True)
        (home / "tiny.gguf").write_bytes(b"GGUF")
        self._out = home / "out.txt"
        command = [sys.executable, "-m", "tests.gateway.up.fake_stack", str(home), str(self.port)]
        with self._out.open("w") as out:
            self.process = subprocess.Popen(
                [*command, worker_mode, gateway_mode], cwd=REPOSITORY, stdout=out, stderr=out
            )

    @property
    def said(self) -> str:
        return self._out.read_text()

    def wait_for(self, words: str) -> None:
        until(lambda: words in self.said or self.process.poll() is not None, words)
        assert words in self.said, self.said

    def pid(self, name: str) -> int:
        file = self.home / "run" / f"{name}.pid"
        until(lambda: file.exists() and file.read_text().endswith("\n"), f"{name} is started")
        return int(file.read_text())

    def pids(self) -> list[int]:
        return [self.pid(name) for name in ("w0", "w1", "gateway")]

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Sends the signal and returns the exit code."""
        self.process.send_signal(how)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def fake_up(tmp_path: Path) -> Iterator[Callable[..., FakeUp]]:
    started: list[FakeUp] = []

    def start(worker_mode: str = "good", gateway_mode: str = "good", port: int = 0) -> FakeUp:
        started.append(FakeUp(tmp_path / "home", worker_mode, gateway_mode, port))
        return started[-1]

    yield start
    for up in started:
        if up.process.poll() is None:
            up.process.kill()  # its children go with it
            up.process.wait()
