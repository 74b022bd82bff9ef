"""Fixtures of the gateway's tests."""

import gc
import io

import pytest

from gateway import logs


@pytest.fixture
def log_lines() -> io.StringIO:
    """What the process logs from here on, one JSON object a line."""
    gc.collect()  # or what an earlier test has left might be told of here
    stream = io.StringIO()
    logs.configure("info", stream)
    return stream
