"""The server as a process: starts, stops, refuses to start."""

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path

from gateway.settings import Settings
from gateway.up.ports import free_ports
from tests.gateway.scripted_worker import TOKEN, ScriptedWorker
from tests.gateway.stack import SECRET

PROGRAM = "import sys; from gateway.app import serve; from gateway.settings import load; sys.exit(serve(load()))"


async def start(home: Path, port: int, urls: tuple[str, ...] = ()) -> asyncio.subprocess.Process:
    (home / "secret").write_bytes(SECRET)
    settings = Settings(home=home, port=port, worker_urls=urls, worker_token=TOKEN)
    variables = {name: text for name, text in settings.environment().items() if text}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM), env=os.environ | variables, stderr=asyncio.subprocess.PIPE
    )


async def line_of(process: asyncio.subprocess.Process, event: str) -> dict[str, object]:
    """The first log line of that event."""
    assert process.stderr is not None
    async for raw in process.stderr:
        line: dict[str, object] = json.loads(raw)
        if line["event"] == event:
            return line
    raise AssertionError(f"{event} was never logged")


async def test_a_signal_ends_the_server_cleanly(tmp_path: Path) -> None:
    async with ScriptedWorker() as worker:
        process = await start(tmp_path, free_ports(1)[0], (worker.url,))
        joined = await line_of(process, "worker joined")
        assert (joined["worker"], joined["level"]) == ("w0", "info")
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_a_taken_port_is_a_line_and_an_exit_code(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = await start(tmp_path, taken.getsockname()[1])
        assert (await line_of(process, "cannot start"))["port"] == taken.getsockname()[1]
        assert await process.wait() == 1
