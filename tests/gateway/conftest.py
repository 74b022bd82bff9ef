"""Fixtures of the gateway's tests."""

import io
import logging
from collections.abc import Iterator

import pytest
import structlog

from gateway import logs


@pytest.fixture(autouse=True)
def _quiet_logs() -> Iterator[None]:
    """Every test ends with logging as it found it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


@pytest.fixture
def log_lines() -> io.StringIO:
    """What the process logs from here on, one JSON object a line."""
    stream = io.StringIO()
    logs.configure("info", stream)
    return stream
