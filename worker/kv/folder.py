"""The folder of block files: names, modes, and writes that are whole or not there."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from worker.kv.staging import Image

_OURS: Final = re.compile(r"([0-9a-f]{32})\.(kv|tmp)")


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
    """Files named by digest, readable by their owner only. Every method may raise OSError.

    A file under another name is not ours: it is never read, counted or removed, whatever folder an operator points at.

    There is no fsync. After a crash of the machine a file may be empty or torn, which its reader sees by size and
    checksum; a cache that waited for the disk would cost more than it saves.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self) -> None:
        """The folder exists and only its owner may enter."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)

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
            os.utime(file.fileno())
            return True

    def remove(self, digest: bytes) -> None:
        self._path(digest).unlink(missing_ok=True)

    def found(self, head_size: int) -> Iterator[Found]:
        """Every file of ours, with its first head_size bytes, in no order."""
        with os.scandir(self.path) as entries:
            named = [(entry, match) for entry in entries if (match := _OURS.fullmatch(entry.name))]
        for entry, match in named:
            if not entry.is_file(follow_symlinks=False):
                continue
            status = entry.stat(follow_symlinks=False)
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
