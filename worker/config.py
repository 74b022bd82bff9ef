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
    _expect_sense(flags)
    given = vars(flags)
    return WorkerConfig(token=_token(given.pop("token_file")), **given)


def _expect_sense(flags: argparse.Namespace) -> None:
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
    _serving(parser)
    _computing(parser)
    _keeping(parser)
    _drafting(parser)
    return parser


def _serving(parser: argparse.ArgumentParser) -> None:
    flags = parser.add_argument_group("serving", "where it is found, and by whom")
    flags.add_argument("--host", default="127.0.0.1")
    flags.add_argument("--port", type=int, required=True)
    flags.add_argument("--token-file", type=Path, required=True, help="file with the token that callers must send")
    flags.add_argument("--name", default="smollm2", help="the model's name at the gateway")
    flags.add_argument("--worker-id", default="w0")
    flags.add_argument("--max-waiting", type=int, default=256, help="sequences that may wait for a slot")
    flags.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")


def _computing(parser: argparse.ArgumentParser) -> None:
    flags = parser.add_argument_group("computing", "the model, and what it is computed with")
    flags.add_argument("--model", type=Path, required=True, help="a GGUF file, or a Hugging Face folder")
    flags.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    flags.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where it computes; auto is CUDA where there is one",
    )
    flags.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto")
    flags.add_argument(
        "--weights",
        choices=("auto", *STORAGES),
        default="auto",
        help="what matrices are kept as; auto: docs/operating.md",
    )
    flags.add_argument("--context-length", type=int, default=8192, help="tokens; the model's own limit caps it")
    flags.add_argument("--slots", type=int, default=8, help="sequences that run at once")
    flags.add_argument("--chunk-tokens", type=int, default=128, help="tokens computed in one step")
    flags.add_argument(
        "--deterministic", action="store_true", help="the same bits alone and in any batch, by slower products"
    )


def _keeping(parser: argparse.ArgumentParser) -> None:
    flags = parser.add_argument_group("keeping", "KV, and for how long it is kept")
    flags.add_argument("--block-size", type=int, default=16)
    flags.add_argument(
        "--blocks", type=int, default=2048, help="KV blocks: kept for reuse, and with --kv-layout paged also in use"
    )
    flags.add_argument(
        "--kv-layout",
        choices=("auto", "slots", "paged"),
        default="auto",
        help="where running sequences have their KV: slots of their own, or the blocks; auto is slots on a CPU",
    )
    flags.add_argument(
        "--kv-dtype",
        choices=KINDS,
        default="auto",
        help="what KV is kept as: int8 and fp8 are codes with a scale for each token and head; auto: docs/operating.md",
    )
    flags.add_argument("--host-mib", type=int, default=512, help="host memory for KV that left the device; 0 for none")
    flags.add_argument("--disk-mib", type=int, default=0, help="disk for KV that left the host; 0 for none")
    flags.add_argument("--disk-folder", type=Path, default=Path("kv"), help="where the disk tier keeps its files")
    flags.add_argument(
        "--offload-priority", type=int, default=20, help="least priority that is copied to host or disk, 0 to 100"
    )
    for flag, tier in (("--lease-blocks", "device"), ("--lease-host-blocks", "host"), ("--lease-disk-blocks", "disk")):
        flags.add_argument(flag, type=int, help=f"blocks that one tag may have under lease on {tier}; half by default")


def _drafting(parser: argparse.ArgumentParser) -> None:
    flags = parser.add_argument_group(
        "drafting", "tokens that are computed before it is known whether they are the next"
    )
    flags.add_argument(
        "--speculation",
        choices=("auto", "ngram", "off"),
        default="auto",
        help="draft tokens by looking up in prompt and reply what came next before: as far as it pays, always, never",
    )
    flags.add_argument("--draft-tokens", type=int, default=16, help="the most that one reply has in one step")
    flags.add_argument(
        "--draft-model",
        type=Path,
        help="a smaller model with the same tokens, GGUF file or folder, that drafts where looking up finds nothing",
    )
