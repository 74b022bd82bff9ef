"""Tables for people, JSON for programs, and the conditions under which figures were taken."""

import json
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """What the figures depend on and the table should say."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns of equal width; the first to the left, figures to the right."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if not at else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def save(name: str, figures: dict[str, Any]) -> Path:
    """Writes bench/results/NAME.json."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(figures, indent=2) + "\n")
    return path


def publish(name: str, figures: dict[str, Any], text: str, *, as_json: bool) -> None:
    """The end of a benchmark: its table for people, its figures saved, and for programs one JSON object on standard
    output, which the table then leaves to it."""
    print(text, file=sys.stderr if as_json else sys.stdout)
    say(f"saved as {save(name, figures)}")
    if as_json:
        print(json.dumps(figures))


def say(text: str) -> None:
    """A word about what is going on, for who waits."""
    print(f"bench: {text}", file=sys.stderr)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
