"""What must hold before anything is started. Each failure is one sentence that says what to do."""

import errno
import importlib.util
import shutil
import socket
from pathlib import Path

from gateway.settings import Settings

FREE_BYTES = 256 * 1024 * 1024
NEEDED = ("aiohttp", "llguidance", "starlette", "tokenizers", "torch", "uvicorn", "xxhash", "zmq")


class UpError(Exception):
    """The stack cannot start; one sentence for the person at the terminal."""


def check_packages(needed: tuple[str, ...] = NEEDED) -> None:
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise UpError(f"Python packages are missing ({', '.join(missing)}); run `make env`, or `pip install saltway`.")


def check_workers(settings: Settings) -> None:
    if settings.worker_urls and not settings.worker_token:
        raise UpError("Workers that run elsewhere need their token: set SALTWAY_WORKER_TOKEN.")


def check_disk(home: Path, needed: int = FREE_BYTES) -> None:
    """Free space where the home folder is, or will be."""
    home = home.absolute()
    try:
        standing = next(path for path in (home, *home.parents) if path.exists())
        free = shutil.disk_usage(standing).free
    except OSError as error:
        raise UpError(f"Cannot enter {home} ({error.strerror}); choose another folder with SALTWAY_HOME.") from None
    if free < needed:
        raise UpError(
            f"Only {free // 2**20} MiB are free at {standing} and {needed // 2**20} are needed; "
            "make room, or choose another folder with SALTWAY_HOME."
        )


def check_port(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a port just left counts as free
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UpError(_why_not(host, port, error)) from None


def _why_not(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} is in use; stop what listens there, or choose another (make up PORT={_other(port)})."
    if error.errno == errno.EACCES:
        return f"This user may not open port {port}; choose one above 1023 (make up PORT=8080)."
    return f"Cannot listen at {host} ({error.strerror or error}); set SALTWAY_HOST to an address of this machine."


def _other(port: int) -> int:
    return port + 1 if port < 65535 else 8080
