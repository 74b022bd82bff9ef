"""Logs of a worker: one JSON object a line on standard error.

A line carries ids, counts, times and names of classes. It never carries what a request said, nor the message of an
unforeseen exception, which may quote that.
"""

import logging
import re
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec
import structlog


def configure(level: str, stream: TextIO | None = None) -> None:
    """Sends our own lines, and those of libraries from warnings on, to `stream` (standard error). Once in a process."""
    target = sys.stderr if stream is None else stream
    threshold: int = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(target),
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(_Line())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(threshold, logging.WARNING))


def places(error: BaseException) -> list[str]:
    """Where it was raised, outermost call first."""
    return [f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]


class _Line(logging.Formatter):
    """What a library says, up to where it begins to quote: asyncio shows tasks and callbacks with their arguments."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "event": re.split(r"[\n<(]", record.getMessage())[0].strip(),
            "part": record.name,
            "level": record.levelname.lower(),
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
        }
        if record.exc_info and record.exc_info[1] is not None:
            said |= {"error": type(record.exc_info[1]).__name__, "at": places(record.exc_info[1])}
        return msgspec.json.encode(said).decode()
