"""Where ledger rows wait on disk when the database is away at shutdown: JSON lines, read back at the next start."""

import dataclasses
import json
import os
from collections.abc import Iterable
from pathlib import Path

from tenants.schema import LedgerRow


class Spill:
    """A file of ledger rows. Reading it twice does no harm: the ledger drops a row whose request id it has."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, rows: Iterable[LedgerRow]) -> None:
        """Adds rows and waits until the disk has them. Makes the folder where there is none. OSError."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            # Each on a line of its own, also behind one that a crash has cut short.
            file.writelines("\n" + json.dumps(dataclasses.asdict(row)) for row in rows)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[LedgerRow]:
        """Every whole row; a last line cut short by a crash is left out. An absent file is empty."""
        if not self.path.exists():
            return []
        return [
            row for line in self.path.read_text("utf-8", "replace").splitlines() if (row := _parse(line)) is not None
        ]

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)


def _parse(line: str) -> LedgerRow | None:
    try:
        return LedgerRow(**json.loads(line))
    except (ValueError, TypeError):
        return None
