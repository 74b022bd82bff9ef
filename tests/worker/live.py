"""A whole worker process's insides on real sockets, in a thread of the test."""

import asyncio
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from worker.__main__ import WorkerProcess
from worker.config import parse

TOKEN = "a-worker-token-for-tests"


class LiveWorker:
    """The tiny model behind uvicorn on a port that the system chose; ready when the block is entered."""

    def __init__(self, model: Path, folder: Path, *flags: str) -> None:
        (folder / "token").write_text(TOKEN)
        arguments = ["--port", "0", "--token-file", str(folder / "token"), "--model", str(model), "--dtype", "float32"]
        self._config = parse([*arguments, "--threads", "1", *flags])
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="worker")
        self.process: WorkerProcess
        self.loop: asyncio.AbstractEventLoop
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        assert self.url, "the worker did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._leave)
        self._thread.join()

    def wait(self) -> None:
        """Until the worker has ended by itself."""
        self._thread.join()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        try:
            self.process = WorkerProcess(self._config)
            serving = asyncio.create_task(self.process.run(self._config))
            self.url = await self._address()
        finally:
            self._ready.set()
        await serving

    async def _address(self) -> str:
        while True:
            server = self.process._server
            if server is not None and server.started:
                host, port = server.servers[0].sockets[0].getsockname()
                return f"http://{host}:{port}"
            await asyncio.sleep(0.005)

    def _leave(self) -> None:
        assert self.process._server is not None
        self.process._server.should_exit = True
