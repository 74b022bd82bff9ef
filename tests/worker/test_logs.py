"""Lines of libraries in a worker's log: JSON, and nothing of what they quote."""

import asyncio
import gc
import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from worker import logs


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What is logged."""
    gc.collect()  # or what an earlier test has left might be told of here
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    stream = io.StringIO()
    logs.configure("info", stream)
    yield stream
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def test_an_exception_in_the_server_is_told_by_class_and_place(written: io.StringIO) -> None:
    try:
        raise ValueError("what a prompt said")
    except ValueError:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application\n")
    text = written.getvalue()
    line = json.loads(text)
    assert (line["event"], line["part"], line["level"]) == ("Exception in ASGI application", "uvicorn.error", "error")
    assert line["error"] == "ValueError"
    assert line["at"][0].startswith("test_an_exception_in_the_server")
    assert "prompt" not in text


async def test_a_task_that_nobody_awaited_is_told_without_its_words(written: io.StringIO) -> None:
    async def fail() -> None:
        raise ValueError("what a prompt said")

    task = asyncio.create_task(fail())
    await asyncio.sleep(0)
    del task
    gc.collect()
    text = written.getvalue()
    assert json.loads(text)["event"] == "Task exception was never retrieved"
    assert "prompt" not in text


def test_a_callback_that_fails_is_told_without_its_arguments(written: io.StringIO) -> None:
    def fail(_said: str) -> None:
        raise ValueError("what a prompt said")

    loop = asyncio.new_event_loop()
    loop.call_soon(fail, "what a prompt said")
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    text = written.getvalue()
    assert json.loads(text)["error"] == "ValueError"
    assert "prompt" not in text
