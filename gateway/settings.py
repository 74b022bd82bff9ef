"""Settings: defaults, then `saltway.toml`, then SALTWAY_* variables, then the command line; read at the edge, once.

load            the settings of this process
Settings        every option, typed and documented; docs/configuration.md is written from it by `saltway config docs`
SettingsError   names the option and says what to do; never repeats a value, which may be a secret
"""

import difflib
import os
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from cacheplane.strategy import StrategyName
from gateway.options import PREFIX, Option, as_text, options, table

CONFIG_FILE = "saltway.toml"
PACKAGED_MODEL = "smollm2"

# In a shell that has read demo.env these are set too; they are for clients.
_NOT_OPTIONS = ("SALTWAY_CONFIG", "SALTWAY_URL", "SALTWAY_ADMIN_KEY", "SALTWAY_KEY_")
_SECRET = ("worker_token",)


class SettingsError(Exception):
    """The configuration cannot be used; one sentence for the operator."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds on what one client can ask for."""

    body_bytes: Annotated[int, Meta(ge=1024, description="Longest request body, in bytes.")] = 8 * 1024 * 1024
    deadline_ms: Annotated[
        int, Meta(ge=1000, description="Longest time that a request may take from arrival to its last token, in ms.")
    ] = 600_000
    completion_tokens: Annotated[
        int, Meta(ge=1, description="Tokens that an answer may have when the request does not say.")
    ] = 1024
    send_ms: Annotated[
        int, Meta(ge=1000, description="Longest time that a client may leave a stream unread before it is cut, in ms.")
    ] = 30_000


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All options of the gateway and of `saltway up`."""

    home: Annotated[Path, Meta(description="Folder of all state: database, secrets, logs.")] = Path(".saltway")
    host: Annotated[str, Meta(min_length=1, description="Address that the gateway listens at.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=1, le=65535, description="Port that the gateway listens at.")] = 8080
    workers: Annotated[
        int, Meta(ge=1, le=64, description="Workers that `saltway up` starts; they share the cores between them.")
    ] = 2
    model: Annotated[
        str,
        Meta(
            min_length=1,
            description="A GGUF file, a Hugging Face folder, or `smollm2`, the packaged SmolLM2-135M-Instruct.",
        ),
    ] = PACKAGED_MODEL
    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        Meta(description="Where the workers compute; `auto` is CUDA where there is one. All take the same card."),
    ] = "auto"
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Meta(description="Type that the workers compute in; `auto` takes the fastest of this machine."),
    ] = "auto"
    weights: Annotated[
        Literal["auto", "float32", "bfloat16", "float16", "file", "file-a8", "int8", "int4", "fp8"],
        Meta(
            description="What the workers keep matrices as; `file` takes the codes of a quantised file, `file-a8` "
            "also rounds activations to 8 bits beside codes of 4, and is what `auto` takes on a CPU without AVX-512; "
            "`file`, `file-a8`, `float16` and `int4` are for the CPU, `fp8` is for CUDA."
        ),
    ] = "auto"
    kv_dtype: Annotated[
        Literal["auto", "float32", "float16", "int8", "fp8"],
        Meta(
            description="What the workers keep KV as: `int8` and `fp8` take a quarter of float32's memory in every "
            "tier; `auto` is `float16` on a CPU that computes in float32, by kernels in C, and else the type that "
            "they compute in."
        ),
    ] = "auto"
    context_length: Annotated[
        int,
        Meta(
            ge=0,
            description="Longest prompt plus answer, in tokens; 0 is the model's own length, or 8192 if that is less.",
        ),
    ] = 0
    threads: Annotated[int, Meta(ge=0, description="Threads of each worker; 0 shares the cores evenly.")] = 0
    device_cache_blocks: Annotated[
        int, Meta(ge=1, description="Blocks of 16 tokens in the device pool of each worker.")
    ] = 2048
    host_cache_mib: Annotated[
        int, Meta(ge=0, description="Memory of each worker for cached blocks that left its device pool, in MiB.")
    ] = 512
    disk_cache_mib: Annotated[
        int,
        Meta(ge=0, description="Disk of each worker, in the home folder, for blocks that left its memory, in MiB."),
    ] = 1024
    database_url: Annotated[
        str,
        Meta(
            description="`sqlite:///FILE` or `postgresql://USER@HOST/NAME`; empty is `saltway.db` in the home folder."
        ),
    ] = ""
    secret_file: Annotated[
        str, Meta(description="File of the master secret behind all cache salts; empty is `secret` in the home folder.")
    ] = ""
    worker_urls: Annotated[
        tuple[Annotated[str, Meta(pattern="^https?://.")], ...],
        Meta(description="Workers that run elsewhere (in a variable: separated by commas); then `up` starts none."),
    ] = ()
    worker_token: Annotated[
        str, Meta(description="Token that workers ask for; empty reads `worker.token` in the home folder.")
    ] = ""
    placement: Annotated[
        StrategyName,
        Meta(
            description="`cost` is for use. To measure its worth: `load-only` leaves caches out, `round-robin` takes "
            "workers in turn, `longest-overlap` asks only who has most of the prompt cached."
        ),
    ] = "cost"
    tool_wait_priority: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="Priority of the lease on a conversation while its tools run; what is not under lease has 35, "
            "and 0 takes none.",
        ),
    ] = 70
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Least severity that is logged.")
    ] = "info"
    limits: Limits = Limits()

    def __repr__(self) -> str:
        return f"Settings(home={str(self.home)!r}, host={self.host!r}, port={self.port})"

    @property
    def url(self) -> str:
        """Where clients on this machine find the gateway."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 (never listened at here)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def database(self) -> str:
        """The database's address, the default filled in."""
        return self.database_url or f"sqlite:///{self.home.absolute()}/saltway.db"

    @property
    def secret_path(self) -> Path:
        return Path(self.secret_file) if self.secret_file else self.home / "secret"

    @property
    def worker_token_path(self) -> Path:
        return self.home / "worker.token"

    def read_secret(self) -> bytes:
        """The master secret. SettingsError when there is none: it is made by `saltway up`, never in passing."""
        secret = _read(self.secret_path, "the master secret", "write 32 random bytes or more there")
        if len(secret) < 32:
            raise SettingsError(f"The master secret in {self.secret_path} is shorter than 32 bytes; restore it.")
        return secret

    def read_worker_token(self) -> str:
        """What workers ask for: the option, else the file in the home folder. SettingsError when there is neither."""
        if self.worker_token:
            return self.worker_token
        token = _read(self.worker_token_path, "the workers' token", "set SALTWAY_WORKER_TOKEN")
        return token.decode("ascii", "replace").strip()

    def environment(self) -> dict[str, str]:
        """The SALTWAY_* variables that give another process these very settings, whatever its folder or file says."""
        return {option.variable: as_text(option.value(self)) for option in options(Settings)}


def load(
    overrides: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """The settings of this process.

    overrides   options of the command line by name; None stands for not given
    environ     the process's own variables by default; one that is empty counts as not set
    folder      where `saltway.toml` is looked for unless SALTWAY_CONFIG names a file; the current one by default
    raises      SettingsError
    """
    environ = os.environ if environ is None else environ
    values = _from_file(environ, folder or Path.cwd())
    for path, text in _from_environment(environ):
        table = values
        for part in path[:-1]:
            table = table.setdefault(part, {})
        table[path[-1]] = text
    values |= {name: value for name, value in (overrides or {}).items() if value is not None}
    return _convert(values)


def _from_file(environ: Mapping[str, str], folder: Path) -> dict[str, Any]:
    named = environ.get("SALTWAY_CONFIG", "")
    path = Path(named) if named else folder / CONFIG_FILE
    if not named and not path.exists():
        return {}
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(
            f"Cannot read {path}: {error.strerror}; make it readable or unset SALTWAY_CONFIG."
        ) from None
    except ValueError as error:
        raise SettingsError(f"{path} is not valid TOML: {error}; correct it there.") from None
    _refuse_unknown(values, path.name)
    return values


def _refuse_unknown(values: Mapping[str, Any], where: str) -> None:
    known = {option.name for option in options(Settings)}
    for name in _leaves(values):
        if name not in known:
            raise SettingsError(f"Unknown option {name} in {where}; {_advice(name, known)}")


def _leaves(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    tables = {option.path[0] for option in options(Settings) if len(option.path) > 1}
    for name, value in values.items():
        if isinstance(value, dict) and not above and name in tables:
            yield from _leaves(value, f"{name}.")
        elif above or name not in tables:
            yield above + name


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[tuple[str, ...], Any]]:
    known = {option.variable: option for option in options(Settings)}
    for name, text in environ.items():
        if not name.startswith(PREFIX) or name.startswith(_NOT_OPTIONS) or not text:
            continue
        if name not in known:
            raise SettingsError(f"Unknown variable {name}; {_advice(name, known)}")
        path = known[name].path
        yield path, [url.strip() for url in text.split(",") if url.strip()] if path == ("worker_urls",) else text


def _advice(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else "`saltway config docs` lists those that exist."


def _convert(values: dict[str, Any]) -> Settings:
    try:
        return msgspec.convert(values, Settings, strict=False, dec_hook=_decode)
    except msgspec.ValidationError as error:
        name = str(error).partition(" - at `$.")[2].partition("[")[0].rstrip("`")
    for option in options(Settings):
        if option.name == name:
            where = f"{CONFIG_FILE} or {option.variable}"
            raise SettingsError(f"Option {name} must be {option.kind}; correct it in {where}, or leave it out.")
    raise SettingsError(f"Option {name} must be a table; correct it in {CONFIG_FILE}, or leave it out.")


def _decode(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str) and value:
        return Path(value)
    raise ValueError("Expected a path")


def _read(path: Path, what: str, remedy: str) -> bytes:
    try:
        return path.read_bytes().strip()
    except OSError as error:
        told = f"Cannot read {what} from {path}: {error.strerror}; `saltway up` makes it, or {remedy}."
        raise SettingsError(told) from None


def documentation() -> str:
    """docs/configuration.md, whole."""
    return f"""# Configuration

Written by `saltway config docs`; change `gateway/settings.py`, not this file.

An option comes from its default, then from `{CONFIG_FILE}` in the current folder (or the file that
`SALTWAY_CONFIG` names), then from its environment variable, then from the command line; the last one wins.
A variable that is empty counts as not set. An option that does not exist is an error.
`saltway config show` prints what is in force.

{table(Settings)}

Options with a dot belong to a table: `limits.body_bytes` is `body_bytes` under `[limits]`.
"""


def shown(settings: Settings) -> str:
    """All options with their present values, one a line; secrets are masked."""
    return "\n".join(f"{option.name} = {_masked(option, settings)}" for option in options(Settings))


def _masked(option: Option, settings: Settings) -> str:
    value = option.value(settings)
    if option.name in _SECRET and value:
        return "***"
    if option.name == "database_url" and value:
        try:
            return make_url(value).render_as_string(hide_password=True)
        except ArgumentError:
            return "(not a database address)"
    return as_text(value)
