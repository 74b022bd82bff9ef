"""The usage ledger: one row for every request, written behind the request's back, and never lost."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from tenants.database import Database, is_away
from tenants.schema import LedgerRow
from tenants.spill import Spill

BATCH_ROWS = 500
LINGER_SECONDS = 0.02  # a burst of requests becomes one transaction
RETRY_SECONDS = (0.1, 5.0)  # first and longest wait while the database is away

_COLUMNS = tuple(column.key for column in LedgerRow.__table__.columns)
_TEXT_COLUMNS = tuple(column.key for column in LedgerRow.__table__.columns if column.type.python_type is str)
_log = logging.getLogger("saltway.tenants.ledger")


class Ledger:
    """Takes rows without waiting, writes them in batches, in order, and keeps trying while the database is away.

    append   any time, also before `start`; never blocks, never raises
    start    once, in the event loop; first takes in what an earlier process had to leave in `spill`
    drain    at shutdown; returns when every row is in the database, or, past its time limit, on disk in `spill`; where
             that cannot be written it says in the log how many were lost

    A row may be written again after a crash between commit and acknowledgement; its request id makes that harmless.
    """

    def __init__(
        self,
        database: Database,
        spill: Path | None = None,
        *,
        retry_seconds: tuple[float, float] = RETRY_SECONDS,
    ) -> None:
        self._database = database
        self._spill = Spill(spill) if spill is not None else None
        self._retry_seconds = retry_seconds
        self._rows: deque[LedgerRow] = deque()
        self._spilled = 0
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._writer: asyncio.Task[None] | None = None
        self.written = 0
        self.rejected = 0

    @property
    def pending(self) -> int:
        """Rows taken and not yet in the database."""
        return len(self._rows)

    def append(self, row: LedgerRow) -> None:
        self._rows.append(row)
        self._settled.clear()
        self._wake.set()

    async def start(self) -> None:
        if self._spill is not None:
            left = await asyncio.to_thread(self._spill.read)
            self._spilled = len(left)
            self._rows.extendleft(reversed(left))
        if self._rows:
            self._settled.clear()
            self._wake.set()
        self._writer = asyncio.create_task(self._run(), name="ledger-writer")

    async def drain(self, timeout_s: float | None = None) -> int:
        """Waits for the writer, then stops it. Returns the rows that are not in the database: 0, or those spilled."""
        if self._writer is None:
            await self.start()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), timeout_s)
        await self._stop()
        if self._rows and self._spill is not None:
            await self._keep(self._spill, list(self._rows)[self._spilled :])
        return self.pending

    async def _keep(self, spill: Spill, rows: list[LedgerRow]) -> None:
        try:
            await asyncio.to_thread(spill.write, rows)
        except OSError as error:
            _log.error("ledger rows are lost", extra={"rows": len(rows), "error": type(error).__name__})

    async def _stop(self) -> None:
        if self._writer is None:
            return
        self._writer.cancel()
        with suppress(asyncio.CancelledError):
            await self._writer
        self._writer = None

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            await asyncio.sleep(LINGER_SECONDS)
            self._wake.clear()
            while self._rows:
                await self._write_first(list(islice(self._rows, BATCH_ROWS)))
            self._settled.set()

    async def _write_first(self, batch: Sequence[LedgerRow]) -> None:
        """Writes the head of the queue and only then takes it off, so that no failure in between loses a row."""
        await self._insert(batch)
        for _ in batch:
            self._rows.popleft()
        if self._spilled:
            self._spilled = max(0, self._spilled - len(batch))
            if not self._spilled and self._spill is not None:
                with suppress(OSError):  # then its rows are read again, and known by their ids
                    self._spill.clear()

    async def _insert(self, batch: Sequence[LedgerRow]) -> None:
        """Puts the rows in the database, waiting as long as it is away; a row that it refuses for good is set aside."""
        wait, longest = self._retry_seconds
        while True:
            try:
                await self._commit(batch)
            except Exception as error:
                if not is_away(error):
                    return await self._isolate(batch, error)
                _log.warning("ledger waits for the database", extra={"rows": self.pending, "retry_s": wait})
                await asyncio.sleep(wait)
                wait = min(wait * 2, longest)
            else:
                self.written += len(batch)
                return None

    async def _isolate(self, batch: Sequence[LedgerRow], error: Exception) -> None:
        """One bad row must not hold up the others: halves the batch until the bad row is alone, then reports it."""
        if len(batch) > 1:
            middle = len(batch) // 2
            await self._insert(batch[:middle])
            await self._insert(batch[middle:])
            return
        self.rejected += 1
        known = isinstance(error, SQLAlchemyError)
        _log.error(
            "ledger row refused by the database",
            extra={"request_id": batch[0].request_id, "error": type(error).__name__},
            exc_info=None if known else error,
        )

    async def _commit(self, batch: Sequence[LedgerRow]) -> None:
        async with self._database.transaction() as session:
            await session.execute(self._database.insert_new(LedgerRow), [_values(row) for row in batch])


def _values(row: LedgerRow) -> dict[str, object]:
    """A row as parameters. NUL and lone surrogates cannot be stored as PostgreSQL text and are replaced."""
    values = {name: getattr(row, name) for name in _COLUMNS}
    for name in _TEXT_COLUMNS:
        if isinstance(values[name], str):
            values[name] = values[name].encode("utf-8", "replace").decode().replace("\0", "�")
    return values
