"""Fixtures of the gateway's tests."""

import io

import pytest

from gateway import logs


@pytest.fixture
def log_lines() -> io.StringIO:
    """What the process logs from here on, one JSON object a line."""
    stream = io.StringIO()
    logs.configure("info", stream)
    return stream
