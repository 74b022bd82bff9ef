"""The worker's command line."""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from kernels import STORAGES
from worker.kv import KINDS


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """One worker process. Sizes: context_length in tokens, chunk_tokens per step, blocks of block_size tokens."""

    host: str
    port: int
    token: str
    model: Path
    name: str
    worker_id: str
    threads: int
    device: str
    dtype: str
    weights: str
    context_length: int
    block_size: int
    blocks: int
    kv_layout: str
    kv_dtype: str
    slots: int
    chunk_tokens: int
    host_mib: int
    disk_mib: int
    disk_folder: Path
    offload_priority: int
    lease_blocks: int | None
    lease_host_blocks: int | None
    lease_disk_blocks: int | None
    max_waiting: int
    speculation: str
    draft_tokens: int
    draft_model: Path | None
    deterministic: bool
    log_level: str


class ConfigError(ValueError):
    """A flag that can't be used; the message says what to do."""


def parse(arguments: list[str]) -> WorkerConfig:
    """From command line arguments. ConfigError for values that make no sense; argparse exits for unknown flags."""
    flags = _parser().parse_args(arguments)
    if flags.block_size < 1 or flags.block_size & (flags.block_size - 1):
        raise ConfigError("--block-size must be a power of two")
    if flags.chunk_tokens < 2 * flags.slots:
        raise ConfigError("--chunk-tokens must be at least twice --slots, or prefill would starve")
    for name in ("slots", "blocks", "threads", "context_length", "max_waiting", "draft_tokens"):
        if getattr(flags, name) < 1:
            raise ConfigError(f"--{name.replace('_', '-')} must be at least 1")
    for name in ("host_mib", "disk_mib", "lease_blocks", "lease_host_blocks", "lease_disk_blocks"):
        if (getattr(flags, name) or 0) < 0:
            raise ConfigError(f"--{name.replace('_', '-')} must be 0 or more")
    if flags.deterministic and flags.kv_layout == "paged":
        raise ConfigError("--deterministic needs --kv-layout slots: attention over pages depends on the batch")
    if flags.draft_model is not None and flags.speculation != "auto":
        raise ConfigError("--draft-model needs --speculation auto: a guess of a model is made only where it pays")
    if not 0 <= flags.offload_priority <= 100:
        raise ConfigError("--offload-priority must be from 0 to 100")
    return WorkerConfig(
        host=flags.host,
        port=flags.port,
        token=_token(flags.token_file),
        model=flags.model,
        name=flags.name,
        worker_id=flags.worker_id,
        threads=flags.threads,
        device=flags.device,
        dtype=flags.dtype,
        weights=flags.weights,
        context_length=flags.context_length,
        block_size=flags.block_size,
        blocks=flags.blocks,
        kv_layout=flags.kv_layout,
        kv_dtype=flags.kv_dtype,
        slots=flags.slots,
        chunk_tokens=flags.chunk_tokens,
        host_mib=flags.host_mib,
        disk_mib=flags.disk_mib,
        disk_folder=flags.disk_folder,
        offload_priority=flags.offload_priority,
        lease_blocks=flags.lease_blocks,
        lease_host_blocks=flags.lease_host_blocks,
        lease_disk_blocks=flags.lease_disk_blocks,
        max_waiting=flags.max_waiting,
        speculation=flags.speculation,
        draft_tokens=flags.draft_tokens,
        draft_model=flags.draft_model,
        deterministic=flags.deterministic,
        log_level=flags.log_level,
    )


def _token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"cannot read the worker token from {path}: {error.strerror}") from None
    if len(token) < 16:
        raise ConfigError(f"the worker token in {path} is shorter than 16 characters")
    return token


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m worker", description="Runs one model and serves it to a gateway.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--token-file", type=Path, required=True, help="file with the token that callers must send")
    parser.add_argument("--model", type=Path, required=True, help="a GGUF file, or a Hugging Face folder")
    parser.add_argument("--name", default="smollm2", help="the model's name at the gateway")
    parser.add_argument("--worker-id", default="w0")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where it computes; auto is CUDA where there is one",
    )
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto")
    parser.add_argument(
        "--weights",
        choices=("auto", *STORAGES),
        default="auto",
        help="what matrices are kept as; auto: docs/benchmarks.md",
    )
    parser.add_argument("--context-length", type=int, default=8192, help="tokens; the model's own limit caps it")
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument(
        "--blocks", type=int, default=2048, help="KV blocks: kept for reuse, and with --kv-layout paged also in use"
    )
    parser.add_argument(
        "--kv-layout",
        choices=("auto", "slots", "paged"),
        default="auto",
        help="where running sequences have their KV: slots of their own, or the blocks; auto is slots on a CPU",
    )
    parser.add_argument(
        "--kv-dtype",
        choices=KINDS,
        default="auto",
        help="what KV is kept as: int8 and fp8 are codes with a scale for each token and head; auto: docs/operating.md",
    )
    parser.add_argument("--slots", type=int, default=8, help="sequences that run at once")
    parser.add_argument("--chunk-tokens", type=int, default=128, help="tokens computed in one step")
    parser.add_argument("--host-mib", type=int, default=512, help="host memory for KV that left the device; 0 for none")
    parser.add_argument("--disk-mib", type=int, default=0, help="disk for KV that left the host; 0 for none")
    parser.add_argument("--disk-folder", type=Path, default=Path("kv"), help="where the disk tier keeps its files")
    parser.add_argument(
        "--offload-priority", type=int, default=20, help="least priority that is copied to host or disk, 0 to 100"
    )
    for flag, tier in (("--lease-blocks", "device"), ("--lease-host-blocks", "host"), ("--lease-disk-blocks", "disk")):
        parser.add_argument(flag, type=int, help=f"blocks that one tag may have under lease on {tier}; half by default")
    parser.add_argument("--max-waiting", type=int, default=256, help="sequences that may wait for a slot")
    parser.add_argument(
        "--speculation",
        choices=("auto", "ngram", "off"),
        default="auto",
        help="draft tokens by looking up in prompt and reply what came next before: as far as it pays, always, never",
    )
    parser.add_argument("--draft-tokens", type=int, default=16, help="the most that one reply has in one step")
    parser.add_argument(
        "--draft-model",
        type=Path,
        help="a smaller model with the same tokens, GGUF file or folder, that drafts where looking up finds nothing",
    )
    parser.add_argument(
        "--deterministic", action="store_true", help="the same bits alone and in any batch, by slower products"
    )
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    return parser
