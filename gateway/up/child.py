"""One child process: started with its output in a log file, its number in a pid file, and tied to our own life."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gateway.up.home import Home

PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Process:
    """What to run, and how to know that it is ready: GET `url` + /ready answers 200, with `token` as bearer if any.

    orphaned   the signal it gets when we die without having stopped it
    """

    name: str
    argv: tuple[str, ...]
    url: str
    token: str = field(default="", repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    orphaned: signal.Signals = signal.SIGKILL


class Child:
    """A process that can be started again. Knows nothing of when: that is the supervisor's."""

    def __init__(self, process: Process, home: Home) -> None:
        self.process = process
        self.name = process.name
        self.log: Path = home.log(process.name)
        self.pid_file: Path = home.pid(process.name)
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the process; the one before must have ended."""
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(  # noqa: S603 (our own command line, no shell)
                self.process.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.process.environment},
                start_new_session=True,  # so that Ctrl-C reaches us alone, and we choose the order of stopping
                preexec_fn=_tied_to_us(self.process.orphaned),
            )
        self.pid_file.write_text(f"{self._popen.pid}\n")

    @property
    def running(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Of the last run, negative for a signal; None while it runs or before it ever did."""
        return None if self._popen is None else self._popen.poll()

    def terminate(self) -> None:
        """Asks it to end."""
        if self.running and self._popen is not None:
            self._popen.terminate()

    def kill(self) -> None:
        """Ends it now, together with whatever it started, and waits for that."""
        if self.running and self._popen is not None:
            os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()

    def forget(self) -> None:
        """Removes the pid file, once nobody may signal that number any more."""
        self.pid_file.unlink(missing_ok=True)

    def last_words(self, limit: int = 300) -> str:
        """The end of the last line of its log."""
        lines = self.log.read_bytes()[-4096:].decode("utf-8", "replace").split("\n") if self.log.exists() else []
        return next((line.strip()[-limit:] for line in reversed(lines) if line.strip()), "nothing")


def _tied_to_us(orphaned: signal.Signals) -> Callable[[], None] | None:
    """Runs in the child before its program: the kernel is to signal it when we die, however we die (Linux)."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def tie() -> None:
        libc.prctl(PR_SET_PDEATHSIG, orphaned)
        if os.getppid() != parent:  # we died before the line above took effect
            os._exit(1)

    return tie
