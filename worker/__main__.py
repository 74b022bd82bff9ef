"""python -m worker: loads the model, starts the engine and the publisher, and serves until it is told to stop."""

import asyncio
import secrets
import signal
import sys
import time
from collections.abc import Callable

import structlog
import torch
import uvicorn
import uvloop

from kernels import Storage, compute_dtype, storage_of
from worker import logs
from worker.config import ConfigError, WorkerConfig, parse
from worker.device import device_of
from worker.draft_model import DraftModel
from worker.engine import Engine
from worker.grammar import GrammarCompiler
from worker.kv import FolderError, KVLimits, KVMemory, KVShape, Layout, PagedLayout, SlotLayout, kept_as
from worker.kv.tiled import TILE, TiledSlotLayout
from worker.model import Model, fingerprint
from worker.publisher import EventPublisher
from worker.scheduler import Scheduler
from worker.server import Service, WorkerApp
from worker.speculation import Speculator
from worker.tokenizer import Vocabulary, read_vocabulary
from worker.weights import ModelError, Weights, open_weights
from worker.wire import MAX_N, ModelInfo


def main(arguments: list[str]) -> int:
    """Exit code: 0 stopped, 1 the engine crashed, 2 it could not start (one sentence on stderr says why)."""
    try:
        config = parse(arguments)
        logs.configure(config.log_level)
        return uvloop.run(_serve(config))
    except (ConfigError, ModelError, OSError) as error:
        print(f"worker: {error}", file=sys.stderr)  # noqa: T201
        return 2
    except torch.OutOfMemoryError:  # of CUDA; its own message is a page
        print("worker: the device has no room for the model and its KV; lower --blocks", file=sys.stderr)  # noqa: T201
        return 2


class WorkerProcess:
    """Everything that one worker process is made of."""

    def __init__(self, config: WorkerConfig) -> None:
        self._log = structlog.get_logger().bind(worker=config.worker_id)
        self.crashed: BaseException | None = None
        self._server: uvicorn.Server | None = None
        self._loop = asyncio.get_running_loop()
        began = time.perf_counter()
        service = _build(config, secrets.randbits(63), self._on_crash)
        self._service, self._engine, self._publisher = service, service.engine, service.publisher
        self._memory = service.engine.memory
        self._app = WorkerApp(service)
        info, device = service.info, str(self._memory.layout.device)
        seconds = round(time.perf_counter() - began, 2)
        self._log.info("loaded", model=info.name, device=device, kv_dtype=info.kv_dtype, seconds=seconds)

    async def run(self, config: WorkerConfig) -> None:
        """Serves until a signal, or until the engine has crashed."""
        self._engine.warm_up()
        self._engine.start()
        self._publisher.start()
        self._service.state = "ready"
        self._server = uvicorn.Server(_uvicorn_config(self._app, config))
        try:
            await self._server.serve()
        finally:
            self._service.state = "draining"
            await self._app.close()
            self._engine.stop()
            self._publisher.stop()
            if self.crashed is None:  # after a crash nobody can say that what memory holds is whole
                kept = await asyncio.to_thread(self._memory.shut)
                self._log.info("stopped", kept_blocks=kept)

    def _on_crash(self, error: BaseException) -> None:
        self._log.error("engine crashed", error=type(error).__name__, at=logs.places(error))
        self.crashed = error
        self._loop.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        self._app.fail()
        if self._server is not None:
            self._server.should_exit = True


def _build(config: WorkerConfig, epoch: int, on_crash: Callable[[BaseException], None]) -> Service:
    torch.set_num_threads(config.threads)
    device = device_of(config.device)
    layout_class, (dtype, storage) = _layout_class(config, device), _precision(config, device)
    weights = open_weights(config.model)
    tile = TILE if config.deterministic else None
    vocabulary, model = read_vocabulary(weights), Model(weights, dtype, config.context_length, storage, tile, device)
    shape = _kept(config, model, layout_class)
    layout = layout_class(
        shape,
        slots=config.slots,
        context=model.context,
        blocks=config.blocks,
        block_size=config.block_size,
        device=device,
    )
    kept = "" if shape == model.kv_shape else shape.kind
    mark = fingerprint(weights, dtype, storage, tile, device, kept)
    memory = _memory(config, layout, mark)
    drafts = 0 if config.speculation == "off" else config.draft_tokens
    draft_model = _draft_model(config, model, storage, vocabulary)
    speculator = Speculator(drafts, adaptive=config.speculation == "auto", draft_model=draft_model)
    scheduler = Scheduler(memory, budget=config.chunk_tokens, max_waiting=config.max_waiting, speculator=speculator)
    compiler = GrammarCompiler(vocabulary)
    publisher = EventPublisher(config.host, epoch)  # last: sockets that a failed start left open could hang its exit
    engine = Engine(
        model, vocabulary, memory, scheduler, context=layout.context, publish=publisher.publish, on_crash=on_crash
    )
    info = _model_info(config, epoch, weights, vocabulary, layout.context, shape.kind, mark)
    return Service(info, engine, compiler, publisher, config.token)


def _draft_model(config: WorkerConfig, model: Model, storage: Storage, vocabulary: Vocabulary) -> DraftModel | None:
    if config.draft_model is None:
        return None
    weights = open_weights(config.draft_model)
    difference = vocabulary.difference(read_vocabulary(weights))
    if difference is not None:
        raise ModelError(f"--draft-model {config.draft_model} has other tokens than --model: {difference}")
    guessing = Model(weights, model.dtype, model.context, storage, device=model.device)
    return DraftModel.beside(model, guessing, config.slots)


def _layout_class(config: WorkerConfig, device: torch.device) -> type[SlotLayout] | type[PagedLayout]:
    if device.type == "cpu":
        slots = TiledSlotLayout if config.deterministic else SlotLayout
        return PagedLayout if config.kv_layout == "paged" else slots
    for flag, asked in (("--deterministic", config.deterministic), ("--kv-layout slots", config.kv_layout == "slots")):
        if asked:
            raise ConfigError(f"{flag} is for the CPU alone, and the model would compute on CUDA; add --device cpu")
    return PagedLayout


def _memory(config: WorkerConfig, layout: Layout, mark: str) -> KVMemory:
    limits = KVLimits(
        host_bytes=config.host_mib << 20,
        disk_bytes=config.disk_mib << 20,
        folder=config.disk_folder,
        fingerprint=mark,
        gate=config.offload_priority,
        lease_blocks=config.lease_blocks,
        lease_host_blocks=config.lease_host_blocks,
        lease_disk_blocks=config.lease_disk_blocks,
    )
    try:
        return KVMemory(layout, limits)
    except FolderError as error:
        raise ConfigError(f"--disk-folder: {error}") from None


def _precision(config: WorkerConfig, device: torch.device) -> tuple[torch.dtype, Storage]:
    try:
        dtype = compute_dtype(config.dtype, device)
        return dtype, storage_of(config.weights, dtype, device)
    except ValueError as error:
        raise ConfigError(f"--{error}") from None


def _kept(config: WorkerConfig, model: Model, layout: type[SlotLayout] | type[PagedLayout]) -> KVShape:
    shape = model.kv_shape
    in_c = issubclass(layout, SlotLayout) and SlotLayout.computed_in_c(shape, model.device)
    try:
        return kept_as(config.kv_dtype, shape, computed_in_c=in_c)
    except ValueError as error:
        raise ConfigError(f"--{error}") from None


def _model_info(
    config: WorkerConfig,
    epoch: int,
    weights: Weights,
    vocabulary: Vocabulary,
    context: int,
    kv_dtype: str,
    mark: str,
) -> ModelInfo:
    return ModelInfo(
        worker_id=config.worker_id,
        epoch=epoch,
        name=config.name,
        fingerprint=mark,
        architecture=weights.config.architecture,
        context_length=context,
        block_size=config.block_size,
        kv_dtype=kv_dtype,
        vocab_size=len(vocabulary),
        tokenizer=vocabulary.json,
        chat_template=vocabulary.chat_template,
        bos_id=vocabulary.bos_id,
        eos_id=vocabulary.eos_id,
        stop_ids=vocabulary.stop_ids,
        special_tokens=list(vocabulary.control.values()),
        max_n=min(MAX_N, config.slots),
        draft_model="" if config.draft_model is None else config.draft_model.name,
    )


def _uvicorn_config(app: WorkerApp, config: WorkerConfig) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=config.host,
        port=config.port,
        http="httptools",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
    )


async def _serve(config: WorkerConfig) -> int:
    process = WorkerProcess(config)
    await process.run(config)
    return 1 if process.crashed else 0


if __name__ == "__main__":
    # uvicorn stops on SIGTERM, then raises it again for whoever handled it before.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sys.exit(main(sys.argv[1:]))
