"""Compiling the C sources beside this file for the processor that they will run on."""

import ctypes
import hashlib
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import structlog

_HERE: Final = Path(__file__).parent
_KEPT: Final = _HERE / "__pycache__"
_FLAGS: Final = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fopenmp", "-shared", "-fPIC")
_SECONDS: Final = 120


def load(kept: Path = _KEPT) -> ctypes.CDLL | None:
    """The library: as an earlier process left it, or compiled now in seconds; None, with a warning, if it can't be.

    kept   where it stays; beside this package's byte code, and trusted as that is. It does not where that can't be
           written to. Its name says from what it was made, and for which processor
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        _warn("no C compiler was found; install gcc")
        return None
    sources = sorted(_HERE.glob("*.c"))
    place = kept / f"saltway-{_digest([*sources, *sorted(_HERE.glob('*.h'))], compiler)}.so"
    try:
        if place.exists():
            return ctypes.CDLL(str(place))
        with TemporaryDirectory(prefix="saltway-") as folder:
            built = Path(folder) / place.name
            command = [compiler, *_FLAGS, *map(str, sources), "-lm", "-o", str(built)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603
            if done.returncode:
                _warn(f"{compiler}: {done.stderr.strip()[-300:]}")
                return None
            _keep(built, place)
            return ctypes.CDLL(str(built))
    except (OSError, subprocess.TimeoutExpired) as error:
        _warn(str(error))
        return None


def _keep(built: Path, place: Path) -> None:
    """For the next process, whole or not at all; two that do it at once do the same."""
    staged = place.with_suffix(f".{os.getpid()}")
    try:
        place.parent.mkdir(exist_ok=True)
        shutil.copyfile(built, staged)
        staged.replace(place)
    except OSError:
        with suppress(OSError):
            staged.unlink()


def _digest(files: list[Path], compiler: str) -> str:
    """Of the sources, of how they are compiled, and of what the processor can do."""
    digest = hashlib.sha256("\0".join([compiler, *_FLAGS]).encode())
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    try:
        about = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        about = []
    digest.update(
        "\n".join(sorted({line for line in about if line.startswith(("model name", "flags", "Features"))})).encode()
    )
    return digest.hexdigest()[:24]


def _warn(why: str) -> None:
    structlog.get_logger().warning("no kernels in C, so the worker is several times slower", why=why)
