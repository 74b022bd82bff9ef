"""The server as a process: starts, stops, refuses to start."""

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from openai import APIError, APIStatusError, AsyncOpenAI, AsyncStream
from sqlalchemy import select

from gateway.app import SHUTDOWN_SECONDS
from gateway.settings import Settings
from gateway.up.ports import free_ports
from tenants import Database, LedgerRow
from tests.gateway.scripted_worker import TOKEN, Script, ScriptedWorker
from tests.gateway.stack import SECRET, eventually, tenants

PROGRAM = """
import sys
from gateway import app
from gateway.settings import load
app.SHUTDOWN_SECONDS = float(sys.argv[1])
sys.exit(app.serve(load()))
"""


async def start(
    home: Path, port: int, urls: tuple[str, ...] = (), grace: float = SHUTDOWN_SECONDS
) -> asyncio.subprocess.Process:
    (home / "secret").write_bytes(SECRET)
    settings = Settings(home=home, port=port, worker_urls=urls, worker_token=TOKEN)
    variables = {name: text for name, text in settings.environment().items() if text}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, str(grace)), env=os.environ | variables, stderr=asyncio.subprocess.PIPE
    )


async def line_of(process: asyncio.subprocess.Process, event: str) -> dict[str, object]:
    """The first log line of that event."""
    assert process.stderr is not None
    async for raw in process.stderr:
        line: dict[str, object] = json.loads(raw)
        if line["event"] == event:
            return line
    raise AssertionError(f"{event} was never logged")


async def rest_of(stream: AsyncStream[Any]) -> None:
    async for _ in stream:
        continue


async def test_a_signal_ends_the_server_cleanly(tmp_path: Path) -> None:
    async with ScriptedWorker() as worker:
        process = await start(tmp_path, free_ports(1)[0], (worker.url,))
        joined = await line_of(process, "worker joined")
        assert (joined["worker"], joined["level"]) == ("w0", "info")
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_a_reply_that_outlasts_a_stop_ends_in_an_error_and_is_in_the_ledger(tmp_path: Path) -> None:
    hold = asyncio.Event()
    async with ScriptedWorker() as worker, Database(f"sqlite:///{tmp_path}/saltway.db") as database:
        key = (await tenants(database)).acme
        worker.scripts += [Script(hold_after=(1, hold)), Script(hold_before_start=hold)]
        (port,) = free_ports(1)
        process = await start(tmp_path, port, (worker.url,), grace=1)
        await line_of(process, "worker joined")
        async with AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0) as client:
            create = client.chat.completions.create
            stream = await create(model="tiny", messages=[{"role": "user", "content": "Hi."}], stream=True)
            assert (await anext(stream)).choices[0].delta.role == "assistant"
            plain = asyncio.create_task(create(model="tiny", messages=[{"role": "user", "content": "Hi."}]))
            await eventually(lambda: len(worker.requests) == 2)
            process.send_signal(signal.SIGTERM)
            with pytest.raises(APIError, match="The gateway is stopping; send the request again"):
                await rest_of(stream)
            with pytest.raises(APIStatusError) as refused:
                await plain
            assert (refused.value.status_code, refused.value.code) == (503, "shutting_down")
        assert await process.wait() == 0
        async with database.session() as session:
            rows = (await session.scalars(select(LedgerRow))).all()
        assert [(row.status, row.error_code) for row in rows] == [(503, "shutting_down")] * 2


async def test_a_taken_port_is_a_line_and_an_exit_code(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = await start(tmp_path, taken.getsockname()[1])
        assert (await line_of(process, "cannot start"))["port"] == taken.getsockname()[1]
        assert await process.wait() == 1
