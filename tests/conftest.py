"""What all tests have in common.

Property tests assert laws, never time: a busy machine must not fail them. They draw other examples each time, but the
same ones under the profile `gate` (.ci/run): what a change is judged by must not be luck. And every test ends with
logging as it found it: a log that goes on into the captured stream of a test that is over would fail the next one.
"""

import logging
import os
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

from kernels.native import library, native

settings.register_profile("laws", deadline=None)
settings.register_profile("gate", deadline=None, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "laws"))


@pytest.fixture(autouse=True)
def _own_logs() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


@pytest.fixture
def without_native(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a machine without a C compiler."""
    monkeypatch.setattr(library, "load", lambda: None)
    native.cache_clear()
    yield
    native.cache_clear()
