"""The folder of block files: names, modes, and writes that are whole or not there."""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from worker.kv.staging import Image

_OURS: Final = re.compile(r"([0-9a-f]{32})\.(kv|tmp)")
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class FolderError(Exception):
    """A folder that must not be used; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Found:
    """One file of ours.

    digest   what it is named by
    head     its first bytes, none when they can't be read
    size     bytes
    used     when it was last used, in ns since 1970
    whole    False for what a write left behind when it was cut off
    """

    digest: bytes
    head: bytes
    size: int
    used: int
    whole: bool


class BlockFolder:
    """Files named by digest, readable by their owner only. Every method but `leave` may raise OSError.

    One process at a time has the folder: two would remove each other's files, each holding those that it has not
    written for leftovers. A file under another name is not ours: it is never read, counted or removed, whatever folder
    an operator points at.

    There is no fsync. After a crash of the machine a file may be empty or torn, which its reader sees by size and
    checksum; a cache that waited for the disk would cost more than it saves.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held: int | None = None  # a descriptor of the folder, which has the lock

    def prepare(self) -> None:
        """The folder exists, and is this process's until `leave` or its end.

        One that is made now only its owner may enter. One that was there keeps its mode, since it may be more than
        ours, as /tmp is.

        errors   FolderError when another process has it, or when others could put a file into it: whoever can forge
                 a file can forge its checksum
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.path.stat().st_mode & _OTHERS_WRITE:
            raise FolderError(f"others can write into {self.path}: use chmod go-w, or name a new folder inside it")
        self._held = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno == errno.EWOULDBLOCK:
                self.leave()
                raise FolderError(f"another worker uses {self.path}: name a folder for each") from None
            # else a file system that locks no folders, such as NFS

    def leave(self) -> None:
        """Another process may have the folder."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def write(self, digest: bytes, image: Image) -> None:
        """Writes the file under a temporary name; `publish` gives it its own."""
        temporary = self._temporary(digest)
        try:
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(image.data)
        except OSError:
            self.discard(digest)
            raise

    def publish(self, digest: bytes) -> None:
        try:
            self._temporary(digest).replace(self._path(digest))
        except OSError:
            self.discard(digest)
            raise

    def discard(self, digest: bytes) -> None:
        """Removes what `write` wrote."""
        self._temporary(digest).unlink(missing_ok=True)

    def read(self, digest: bytes, image: Image) -> bool:
        """Fills the image, and marks the file as used now; False when the file has another size."""
        with self._path(digest).open("rb") as file:
            if os.fstat(file.fileno()).st_size != image.size or file.readinto(image.data) != image.size:
                return False
            with suppress(OSError):  # on a disk that has become read-only, what is there is still good
                os.utime(file.fileno())
            return True

    def remove(self, digest: bytes) -> None:
        self._path(digest).unlink(missing_ok=True)

    def found(self, head_size: int) -> Iterator[Found]:
        """Every file of ours, with its first head_size bytes, in no order."""
        with os.scandir(self.path) as entries:
            named = [(entry, match) for entry in entries if (match := _OURS.fullmatch(entry.name))]
        for entry, match in named:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # somebody tidies up
                continue
            if stat.S_ISREG(status.st_mode):
                head = _first_bytes(Path(entry.path), head_size)
                yield Found(bytes.fromhex(match[1]), head, status.st_size, status.st_mtime_ns, match[2] == "kv")

    def _path(self, digest: bytes) -> Path:
        return self.path / f"{digest.hex()}.kv"

    def _temporary(self, digest: bytes) -> Path:
        return self.path / f"{digest.hex()}.tmp"


def _first_bytes(path: Path, size: int) -> bytes:
    """One bad sector must not hide the files beside it, so what can't be read is empty."""
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError:
        return b""
