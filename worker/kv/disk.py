"""The disk tier: one file a block, bounded in bytes, read back only when every byte is right, kept over restarts."""

import errno
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import structlog

from worker.kv.blockfile import BlockFile
from worker.kv.diskcounters import DiskCounters
from worker.kv.folder import BlockFolder, Found
from worker.kv.ranges import DEFAULT_PRIORITY, MAX_PRIORITY
from worker.kv.record import DiskRecord, parents_first
from worker.kv.shape import Block, KVShape
from worker.kv.shelf import Place, Shelf
from worker.kv.staging import Staging
from worker.kv.ticket import Ticket

_STAGING_BYTES: Final = 64 << 20
_READERS: Final = 2

T = TypeVar("T")


class DiskTier:
    """Blocks on disk by digest.

    Any thread may call any method; none of them but `scan` and `close` waits for the disk. One thread of the tier
    writes and removes files, in the order in which it was asked, so that a removal never meets a later copy of the same
    block; others read. `store` and `load` promise futures that never fail because of a disk.

    capacity   files that fit into capacity_bytes; 0 means that the tier is off: it touches nothing and holds nothing.
               It is off too where the scan failed: what it does not know it could not bound
    order      `scan` first, once; RuntimeError otherwise
    owner      one tier a folder, which is locked from `scan` to `close`
    """

    def __init__(
        self,
        folder: Path,
        shape: KVShape,
        block_size: int,
        capacity_bytes: int,
        fingerprint: str,
        *,
        staging_bytes: int = _STAGING_BYTES,
    ) -> None:
        self._file = BlockFile(shape, block_size, fingerprint)
        self._folder = BlockFolder(folder)
        self.file_bytes = self._file.size
        self.capacity = capacity_bytes // self.file_bytes
        self.counters = DiskCounters()
        self._lock = threading.Lock()
        self._shelf = Shelf()
        self._staging = Staging(max(1, staging_bytes // self.file_bytes), self.file_bytes)
        self._tickets: dict[bytes, Ticket] = {}
        self._dropped: dict[bytes, None] = {}  # in order
        self._said: set[int | None] = set()
        self._log = structlog.get_logger()
        self._scanned = self._closed = False
        self._writer = ThreadPoolExecutor(1, "kv-disk-write")
        self._readers = ThreadPoolExecutor(_READERS, "kv-disk-read")

    @property
    def bytes_used(self) -> int:
        with self._lock:
            return len(self._shelf) * self.file_bytes

    def scan(self) -> list[DiskRecord]:
        """What earlier runs left and this model can use, parents before children.

        Reads the head of every file. Removes temporary files, files of another model or format, files whose head or
        size is wrong, blocks without a way to a root, and what no longer fits, least recently used first.

        errors   FolderError for a folder that must not be used
        """
        if self._scanned:
            raise RuntimeError("a disk tier is scanned once")
        self._scanned = True
        if not self.capacity:
            return []
        try:
            self._folder.prepare()
            return self._adopt(self._usable())
        except OSError as error:
            self._say("scan", error)
            self.capacity = 0
            return []

    def store(self, record: DiskRecord, block: Block, priority: int = DEFAULT_PRIORITY) -> Future[bool]:
        """Writes a block; on return the source is copied and may be reused.

        Children may come before parents, but a block that has no way to a root is lost at the next start: who writes a
        path from its root stops at the first block that was refused. No other block under this digest is on disk or on
        its way: the caller sees to that.

        block      see KVShape.parts
        priority   the effective one: who has the lowest makes room first, and none for a block of a lower; see `rank`
        returns    whether the block is on disk under this digest; True at once when it is there already
        errors     ValueError for tensors, digests or an edge that are not a block of this model
        """
        self._file.check(record)
        with self._lock:
            self._expect_scanned()
            if record.digest in self._shelf:
                self._shelf.touch(record.digest)
                return _done(True)
            if ticket := self._tickets.get(record.digest):
                return ticket.future
            if (ticket := self._admit(record, priority)) is None:
                return _done(False)
        try:
            self._file.fill(ticket.image, record, block)
        except BaseException:
            self._settle(ticket, False)
            raise
        self._send(ticket)
        return ticket.future

    def load(self, record: DiskRecord) -> Future[Block | None]:
        """Reads a block back as `store` took it, or None.

        A file that is not in every byte the block that was asked for is removed, and told in `take_dropped`.
        """
        self._file.check(record)
        with self._lock:
            self._expect_scanned()
            place = self._shelf.get(record.digest)
            if place is None or self._closed:
                return _done(None)
            self._shelf.touch(record.digest)
            return self._readers.submit(self._fetch, record, place)

    def touch(self, digest: bytes) -> None:
        """The block is about to be loaded: if it is here, it is the most recently used."""
        with self._lock:
            if digest in self._shelf:
                self._shelf.touch(digest)

    def rank(self, digest: bytes, priority: int) -> None:
        """The effective priority of a block is another one now; it may be on its way, or not here at all."""
        with self._lock:
            if digest in self._shelf:
                self._shelf.rank(digest, priority)
            elif ticket := self._tickets.get(digest):
                ticket.priority = priority

    def priority(self, digest: bytes) -> int | None:
        """As it was told last, of a block on disk; None of another."""
        with self._lock:
            place = self._shelf.get(digest)
            return None if place is None else place.priority

    def give_up(self, digest: bytes) -> None:
        """Nobody comes back to the block: if it is here, it goes first of those of its priority."""
        with self._lock:
            if digest in self._shelf:
                self._shelf.give_up(digest)

    def remove(self, digest: bytes) -> None:
        """The block is gone for every later call, also one that is still being written; its file follows soon.

        Not told in `take_dropped`, even when it had been dropped before: it could be taken for a later copy's end.
        """
        with self._lock:
            self._expect_scanned()
            self._dropped.pop(digest, None)
            waiting = self._tickets.pop(digest, None)
            if self._closed or (waiting is None and digest not in self._shelf):
                return
            if digest in self._shelf:
                self._shelf.remove(digest)
            self._writer.submit(self._unlink, digest)

    def take_dropped(self) -> list[bytes]:
        """Digests of blocks that left the disk without `remove` since the last call, in order.

        The store of each had promised True before. Who keeps books takes these first, then looks at its promises, then
        applies these: a block that is written and dropped between two looks would else be believed present.
        """
        with self._lock:
            dropped, self._dropped = self._dropped, {}
            return list(dropped)

    def close(self) -> None:
        """Waits for what is being written, read and removed. Files stay; from now on nothing is stored or found."""
        with self._lock:
            self._closed = True
        self._readers.shutdown()  # first: a reader that meets a bad file still has the writer remove it
        self._writer.shutdown()
        self._folder.leave()

    def check(self) -> None:
        """The books; RuntimeError when they do not balance. For tests, and when idle."""
        with self._lock:
            self._shelf.check()
            if len(self._shelf) > self.capacity:
                raise RuntimeError("disk tier: more files than fit")
            if any(digest in self._shelf for digest in self._tickets):
                raise RuntimeError("disk tier: a block is on disk and on its way there")
            if len(self._tickets) > self._staging.lent:
                raise RuntimeError("disk tier: a block on its way has no buffer")

    # Writing

    def _admit(self, record: DiskRecord, priority: int) -> Ticket | None:
        """A ticket with a buffer; None when the tier is off or closed, or all buffers are in use. Holds the lock."""
        if self._closed or not self.capacity:
            return None
        if (image := self._staging.take()) is None:
            self.counters.refused += 1
            return None
        ticket = self._tickets[record.digest] = Ticket(record, priority, image)
        ticket.future.set_running_or_notify_cancel()  # a waiter that gives up must not take the buffer with it
        return ticket

    def _send(self, ticket: Ticket) -> None:
        """Hands a filled ticket to the writer, unless the tier was closed while it was being filled."""
        with self._lock:
            if not self._closed:
                self._writer.submit(self._write, ticket)
                return
        self._settle(ticket, False)

    def _write(self, ticket: Ticket) -> None:
        """The writer's part of one store."""
        try:
            stored = self._make_room(ticket) and self._put(ticket)
        except OSError as error:
            self._fail("write", error)
            self._settle(ticket, False)
        except BaseException as bug:
            self._settle(ticket, bug)
        else:
            self._settle(ticket, stored)

    def _make_room(self, ticket: Ticket) -> bool:
        """Drops a block when the disk tier is full; False when all are worth more, or nobody wants the new one."""
        with self._lock:
            if self._tickets.get(ticket.record.digest) is not ticket:
                return False
            if len(self._shelf) < self.capacity:
                return True
            victim = self._shelf.evict(spare=ticket.record.parent, most=self._may_displace(ticket))
            if victim is None:
                self.counters.refused += 1
                return False
            self._report(victim)
            self.counters.evicted += 1
        # If this fails, so does the rename that follows in the same folder: the number of files never grows.
        self._folder.remove(victim)
        return True

    def _may_displace(self, ticket: Ticket) -> int:
        """The highest priority that makes room: its own, or any where blocks that are here would be lost without it."""
        return MAX_PRIORITY if self._shelf.awaits(ticket.record.digest) else ticket.priority

    def _put(self, ticket: Ticket) -> bool:
        """Writes the file and gives it its name; takes it back when the block was removed meanwhile."""
        digest = ticket.record.digest
        self._file.seal(ticket.image)
        self._folder.write(digest, ticket.image)
        self._folder.publish(digest)  # without the lock: a rename waits for the disk, and nobody else may
        with self._lock:
            wanted = self._tickets.get(digest) is ticket
            if wanted:
                del self._tickets[digest]
                self._shelf.add(digest, ticket.record.parent, ticket.priority)
                self.counters.stored += 1
        if not wanted:
            self._folder.remove(digest)
        return wanted

    def _settle(self, ticket: Ticket, outcome: bool | BaseException) -> None:
        """Frees what the ticket holds, then tells who waits: stored or not, or a bug of ours."""
        with self._lock:
            self._staging.give_back(ticket.image)
            if self._tickets.get(ticket.record.digest) is ticket:
                del self._tickets[ticket.record.digest]
        if isinstance(outcome, BaseException):
            ticket.future.set_exception(outcome)
        else:
            ticket.future.set_result(outcome)

    # Reading

    def _fetch(self, record: DiskRecord, place: Place) -> Block | None:
        """A reader's part of one load. The image belongs to the tensors that are returned."""
        image = np.empty(self.file_bytes, np.uint8)
        try:
            block = self._file.open(image, record) if self._folder.read(record.digest, image) else None
        except OSError as error:
            block = None
            if not isinstance(error, FileNotFoundError):
                self._say("read", error)
        with self._lock:
            if block is None:
                self._lose(record.digest, place)
            else:
                self.counters.loaded += 1
        return block

    def _lose(self, digest: bytes, place: Place) -> None:
        """Drops a block whose file is bad, unless it has left since, or come anew. Holds the lock."""
        if self._shelf.get(digest) is not place:
            return
        self._shelf.remove(digest)
        self.counters.corrupt += 1
        self._report(digest)
        self._writer.submit(self._unlink, digest)

    # Books

    def _usable(self) -> list[DiskRecord]:
        """The records of this model's files, least recently used first; the other files are removed."""
        usable: list[tuple[int, DiskRecord]] = []
        for file in self._folder.found(self._file.head_size):
            record = self._file.parse(file.head) if file.whole and file.size == self.file_bytes else None
            if record is not None and record.digest == file.digest:
                usable.append((file.used, record))
                continue
            self.counters.corrupt += 1 if file.whole else 0
            self._clear(file)
        return [record for _, record in sorted(usable, key=lambda pair: pair[0])]

    def _adopt(self, usable: list[DiskRecord]) -> list[DiskRecord]:
        """Puts on the shelf what hangs from a root and fits; the other files are removed."""
        records = parents_first(usable)
        rooted = {record.digest for record in records}
        with self._lock:
            for record in usable:
                if record.digest in rooted:
                    self._shelf.add(record.digest, record.parent, DEFAULT_PRIORITY)
            while len(self._shelf) > self.capacity:
                self._shelf.evict(spare=None)
        for record in usable:
            if record.digest not in self._shelf:
                self._unlink(record.digest)
        return [record for record in records if record.digest in self._shelf]

    def _clear(self, file: Found) -> None:
        try:
            (self._folder.remove if file.whole else self._folder.discard)(file.digest)
        except OSError as error:
            self._say("scan", error)

    def _expect_scanned(self) -> None:
        if not self._scanned:
            raise RuntimeError("a disk tier is scanned first: it cannot bound files that it does not know")

    def _report(self, digest: bytes) -> None:
        self._dropped[digest] = None
        self.counters.dropped += 1

    def _unlink(self, digest: bytes) -> None:
        try:
            self._folder.remove(digest)
        except OSError as error:
            self._say("remove", error)

    def _fail(self, doing: str, error: OSError) -> None:
        with self._lock:
            self.counters.failed += 1
        self._say(doing, error)

    def _say(self, doing: str, error: OSError) -> None:
        """Logs the first error of each kind: a full disk would say the same a thousand times a second."""
        with self._lock:
            first = error.errno not in self._said
            self._said.add(error.errno)
        if first:
            self._log.warning("kv disk failed", doing=doing, error=errno.errorcode.get(error.errno or 0, "unknown"))


def _done(value: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(value)
    return future
