"""The home folder: all state of one stack, readable by its owner alone."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.up.preflight import UpError


class Home:
    """Paths of one home folder; `prepare` makes it, `lock` holds it for one `saltway up` at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.demo_env = self.path / "demo.env"
        self._lock = self.path / "lock"

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.log"

    def pid(self, name: str) -> Path:
        return self.path / "run" / f"{name}.pid"

    def prepare(self) -> None:
        """Makes the folder and what is in it, where missing. UpError when it cannot be written."""
        try:
            for folder in (self.path, self.path / "logs", self.path / "run"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock.touch(mode=0o600)
        except OSError as error:
            raise UpError(
                f"Cannot write to {self.path} ({error.strerror}); choose another folder with SALTWAY_HOME."
            ) from None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the folder until the block ends or the process dies. UpError when another process holds it."""
        with self._lock.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = file.read().strip() or "unknown"
                raise UpError(
                    f"Saltway already runs from {self.path} (process {holder}); stop it, or set another SALTWAY_HOME."
                ) from None
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield


def ensure_secret(path: Path) -> None:
    """A new secret of 256 bits at `path`, unless there is one. Written whole or not at all."""
    if path.exists():
        return
    write_private(path, secrets.token_hex(32) + "\n")


def write_private(path: Path, text: str) -> None:
    """Replaces a file in one step by one that only its owner can read."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
