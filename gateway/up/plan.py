"""Which processes make up a stack: their command lines, addresses and environments."""

import os
import signal
import sys

from gateway.settings import Settings
from gateway.up.child import Process
from gateway.up.model import ModelFile
from gateway.up.ports import LOOPBACK, free_ports


def worker_processes(settings: Settings, model: ModelFile) -> list[Process]:
    """`python -m worker`, once for each worker, on free ports of the loopback address."""
    token = settings.worker_token_path.absolute()
    shared = ["--token-file", str(token), "--model", str(model.path), "--name", model.name]
    shared += ["--threads", str(threads(settings)), "--log-level", settings.log_level]
    shared += ["--device", settings.device, "--dtype", settings.dtype, "--weights", settings.weights]
    shared += ["--kv-dtype", settings.kv_dtype]
    shared += ["--blocks", str(settings.device_cache_blocks)]
    shared += ["--host-mib", str(settings.host_cache_mib), "--disk-mib", str(settings.disk_cache_mib)]
    if settings.context_length:
        shared += ["--context-length", str(settings.context_length)]
    return [
        Process(
            name=f"w{number}",
            argv=(
                *(sys.executable, "-m", "worker", "--port", str(port), "--worker-id", f"w{number}"),
                *("--disk-folder", str(settings.home.absolute() / "kv" / f"w{number}"), *shared),
            ),
            url=f"http://{LOOPBACK}:{port}",
            token=token.read_text().strip(),
        )
        for number, port in enumerate(free_ports(settings.workers))
    ]


def gateway_process(settings: Settings) -> Process:
    """`python -m gateway serve` with these settings; its secrets go by environment, not by command line."""
    return Process(
        name="gateway",
        argv=(sys.executable, "-m", "gateway", "serve"),
        url=settings.url,
        environment=settings.environment(),
        orphaned=signal.SIGTERM,  # it has a ledger to write
    )


def threads(settings: Settings) -> int:
    """Threads of each worker: as set, or an equal share of the cores that this process may use, at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return settings.threads or max(1, cores // settings.workers)
