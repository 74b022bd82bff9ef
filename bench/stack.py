"""A whole Saltway on this machine, started as a user starts it, for as long as a benchmark or a test needs it."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.up.ports import free_ports

_START_SECONDS = 240
_STOP_SECONDS = 40
_PREFIXES = ("SALTWAY_",)


class StackError(RuntimeError):
    """The stack did not become ready; the message carries what it printed last."""


class Stack:
    """`saltway up` in a home of its own.

    options   SALTWAY_* variables by lower-case name, for example placement="load-only"
    keys      the demo's variables: SALTWAY_KEY_ACME, SALTWAY_KEY_GLOBEX, SALTWAY_ADMIN_KEY
    """

    def __init__(self, home: Path | None = None, *, workers: int = 2, **options: str) -> None:
        self._folder = None if home else tempfile.TemporaryDirectory(prefix="saltway-")
        self.home = home or Path(self._folder.name if self._folder else "")
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.keys: Mapping[str, str] = {}
        self._log = self.home / "up.log"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_PREFIXES)}
        self._environment = inherited | {f"SALTWAY_{name.upper()}": value for name, value in options.items()}
        self._command = [sys.executable, "-m", "gateway", "up", "--home", str(self.home), "--port", str(self.port)]
        self._command += ["--workers", str(workers)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            # A session of its own, so that Ctrl-C at a terminal reaches the stack once: from us.
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=self._environment, start_new_session=True
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._folder is not None:
            self._folder.cleanup()

    def stop(self) -> int:
        """Ctrl-C; returns the exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS)
        if self._process.poll() is None:
            self._process.kill()
        return self._process.wait()

    def worker_pid(self, worker: str) -> int:
        return int((self.home / "run" / f"{worker}.pid").read_text())

    def words(self) -> str:
        """What the stack has printed so far."""
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""

    def _wait(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            if self._ready():
                self.keys = _variables(self.home / "demo.env")
                return
            time.sleep(0.2)
        raise StackError(f"the stack did not become ready: {self.words()[-2000:]}")

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/ready", timeout=2) as reply:
                return bool(reply.status == 200) and "ready at" in self.words()
        except (urllib.error.URLError, OSError):
            return False


def _variables(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text("utf-8").splitlines() if "=" in line)
