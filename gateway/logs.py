"""Logs: one JSON object per line on standard error.

A line carries ids, counts, milliseconds and class names. It never carries prompt or completion text, an API key, a
salt, or the message of an unforeseen exception (which may quote any of those).
"""

import logging
import re
import sys
import traceback
from typing import TextIO

import structlog
from structlog.typing import FilteringBoundLogger, Processor

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_SHARED: list[Processor] = [
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


_EXTRAS = ("request_id", "rows", "retry_s", "error")  # that our own rooms add to a line of the standard library
_QUOTES = re.compile(r"[\n<(]")


def configure(level: str = "info", stream: TextIO | None = None) -> None:
    """Send our own lines, and those of libraries, to `stream` (standard error) as JSON. Call once per process."""
    threshold = LEVELS.get(level.lower(), logging.INFO)
    target = sys.stderr if stream is None else stream
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, *_SHARED, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(target),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*_SHARED, structlog.stdlib.ExtraAdder(allow=_EXTRAS)],
            processors=[
                _unquoted,
                _only_the_class,
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _to_json(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(threshold, logging.WARNING))


def get_logger(room: str) -> FilteringBoundLogger:
    """A logger whose lines say which part of the gateway they come from."""
    logger: FilteringBoundLogger = structlog.get_logger(part=room)
    return logger


def where(error: BaseException) -> str:
    """The place that raised, as file:line, for a log line: enough to find the fault, nothing of what was processed."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "unknown"
    last = frames[-1]
    return f"{last.filename.rsplit('/', 1)[-1]}:{last.lineno}"


def _to_json() -> Processor:
    return structlog.processors.JSONRenderer()


def _unquoted(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """A line up to where it begins to quote: asyncio's show tasks and callbacks with their arguments."""
    event["event"] = _QUOTES.split(event["event"])[0].strip()
    return event


def _only_the_class(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Replace a library's traceback by the class and place of its exception."""
    info = event.pop("exc_info", None)
    if isinstance(info, tuple) and isinstance(info[1], BaseException):
        event["error"] = type(info[1]).__name__
        event["where"] = where(info[1])
    return event
