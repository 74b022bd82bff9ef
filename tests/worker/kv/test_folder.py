"""Names, modes and whole files."""

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from worker.kv.folder import BlockFolder, FolderError

DIGEST = b"\xab" * 16
IMAGE = np.arange(100, dtype=np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[BlockFolder]:
    folder = BlockFolder(tmp_path / "state" / "kv")
    folder.prepare()
    yield folder
    folder.leave()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_only_the_owner_may_enter_and_read(tmp_path: Path) -> None:
    folder = BlockFolder(tmp_path / "kv")
    before = os.umask(0)
    try:
        folder.prepare()
        folder.write(DIGEST, IMAGE)
        folder.publish(DIGEST)
    finally:
        os.umask(before)
    assert mode(folder.path) == 0o700
    assert [mode(path) for path in folder.path.iterdir()] == [0o600]
    folder.leave()


@pytest.mark.parametrize("before", [0o755, 0o700, 0o555])
def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path, before: int) -> None:
    """As root a worker could close /tmp to everyone else."""
    tmp_path.chmod(before)
    folder = BlockFolder(tmp_path)
    folder.prepare()
    assert mode(tmp_path) == before
    folder.leave()


@pytest.mark.parametrize("before", [0o1777, 0o777, 0o770])
def test_a_folder_into_which_others_can_write_is_refused(tmp_path: Path, before: int) -> None:
    tmp_path.chmod(before)
    with pytest.raises(FolderError, match=r"others can write into .*chmod go-w, or name a new folder inside it"):
        BlockFolder(tmp_path).prepare()
    assert mode(tmp_path) == before
    inside = BlockFolder(tmp_path / "kv")
    inside.prepare()
    inside.leave()


def test_one_at_a_time_has_a_folder(folder: BlockFolder) -> None:
    other = BlockFolder(folder.path)
    for _ in range(2):
        with pytest.raises(FolderError, match=r"another worker uses .*: name a folder for each"):
            other.prepare()
    folder.leave()
    other.prepare()
    other.leave()


def test_a_file_system_that_locks_no_folders_is_used_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.EBADF, "as NFS says")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    folders = [BlockFolder(tmp_path), BlockFolder(tmp_path)]
    for folder in folders:
        folder.prepare()
    for folder in folders:
        folder.leave()


def test_a_file_has_its_name_only_when_it_is_whole(folder: BlockFolder) -> None:
    into = np.zeros_like(IMAGE)
    folder.write(DIGEST, IMAGE)
    with pytest.raises(FileNotFoundError):
        folder.read(DIGEST, into)
    folder.publish(DIGEST)
    assert folder.read(DIGEST, into)
    assert (into == IMAGE).all()


@pytest.mark.parametrize("size", [0, 99, 101])
def test_a_file_of_another_size_is_not_read(folder: BlockFolder, size: int) -> None:
    folder.write(DIGEST, IMAGE)
    folder.publish(DIGEST)
    assert not folder.read(DIGEST, np.zeros(size, np.uint8))


def test_reading_marks_a_file_as_used(folder: BlockFolder) -> None:
    folder.write(DIGEST, IMAGE)
    folder.publish(DIGEST)
    (path,) = folder.path.iterdir()
    os.utime(path, ns=(1, 1))
    folder.read(DIGEST, np.zeros_like(IMAGE))
    assert path.stat().st_mtime_ns > 1


def test_a_file_is_read_where_none_can_be_marked(folder: BlockFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    folder.write(DIGEST, IMAGE)
    folder.publish(DIGEST)
    monkeypatch.setattr(os, "utime", read_only)
    into = np.zeros_like(IMAGE)
    assert folder.read(DIGEST, into)
    assert (into == IMAGE).all()


def test_a_write_that_fails_leaves_nothing(folder: BlockFolder) -> None:
    folder.write(DIGEST, IMAGE)
    (folder.path / f"{DIGEST.hex()}.kv").mkdir()
    with pytest.raises(OSError, match="directory"):
        folder.publish(DIGEST)
    assert [path.suffix for path in folder.path.iterdir()] == [".kv"]


def test_our_files_are_found_and_no_others(folder: BlockFolder) -> None:
    folder.write(DIGEST, IMAGE)
    folder.publish(DIGEST)
    folder.write(b"\x01" * 16, IMAGE[:3])
    for name in ("notes.txt", "AB" * 16 + ".kv", "ab" * 16 + ".kv.bak", "ab.kv"):
        (folder.path / name).write_text("not ours")
    (folder.path / f"{'cd' * 16}.kv").mkdir()
    (folder.path / f"{'ef' * 16}.kv").symlink_to(folder.path / "notes.txt")
    found = sorted((file.digest, file.head, file.size, file.whole) for file in folder.found(10))
    assert found == [(b"\x01" * 16, bytes(IMAGE[:3]), 3, False), (DIGEST, bytes(IMAGE[:10]), 100, True)]


def test_a_file_that_cannot_be_read_does_not_hide_the_others(
    folder: BlockFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for digest in (DIGEST, b"\x01" * 16):
        folder.write(digest, IMAGE)
        folder.publish(digest)
    opened = Path.open

    def bad_sector(path: Path, mode: str) -> object:
        if path.name.startswith("ab"):
            raise OSError(5, "Input/output error")
        return opened(path, mode)

    monkeypatch.setattr(Path, "open", bad_sector)
    assert sorted((file.digest, len(file.head)) for file in folder.found(10)) == [(b"\x01" * 16, 10), (DIGEST, 0)]


def test_a_file_that_goes_away_meanwhile_is_not_found(folder: BlockFolder) -> None:
    for digest in (DIGEST, b"\x01" * 16):
        folder.write(digest, IMAGE)
        folder.publish(digest)
    found = folder.found(10)
    first = next(found)
    for digest in (DIGEST, b"\x01" * 16):
        folder.remove(digest)
    assert (len(first.head), list(found)) == (10, [])


def test_what_is_not_there_can_be_removed(folder: BlockFolder) -> None:
    folder.remove(DIGEST)
    folder.discard(DIGEST)
