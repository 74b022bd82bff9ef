"""The worker's command line: what it takes, and one sentence for what it cannot use."""

from pathlib import Path

import pytest

from tests.worker.live import TOKEN
from worker.config import ConfigError, WorkerConfig, parse


@pytest.fixture
def required(tmp_path: Path) -> list[str]:
    """The flags that have no default."""
    (tmp_path / "token").write_text(TOKEN + "\n")
    return ["--port", "8100", "--token-file", str(tmp_path / "token"), "--model", "/models/m.gguf"]


def test_the_defaults_are_those_of_one_worker_on_loopback(required: list[str]) -> None:
    config = parse([*required, "--threads", "2"])
    assert config == WorkerConfig(
        host="127.0.0.1",
        port=8100,
        token=TOKEN,
        model=Path("/models/m.gguf"),
        name="smollm2",
        worker_id="w0",
        threads=2,
        device="auto",
        dtype="auto",
        weights="auto",
        context_length=8192,
        block_size=16,
        blocks=2048,
        kv_layout="auto",
        kv_dtype="auto",
        slots=8,
        chunk_tokens=128,
        host_mib=512,
        disk_mib=0,
        disk_folder=Path("kv"),
        offload_priority=20,
        lease_blocks=None,
        lease_host_blocks=None,
        lease_disk_blocks=None,
        max_waiting=256,
        speculation="auto",
        draft_tokens=16,
        draft_model=None,
        deterministic=False,
        log_level="info",
    )


def test_every_flag_is_taken(required: list[str]) -> None:
    flags = {
        "host": "::1",
        "name": "m",
        "worker_id": "w7",
        "threads": 3,
        "device": "cuda",
        "dtype": "float32",
        "weights": "int4",
        "context_length": 512,
        "block_size": 32,
        "blocks": 9,
        "kv_layout": "paged",
        "kv_dtype": "int8",
        "slots": 2,
        "chunk_tokens": 64,
        "host_mib": 3,
        "disk_mib": 4,
        "disk_folder": Path("/var/kv"),
        "offload_priority": 50,
        "lease_blocks": 7,
        "lease_host_blocks": 8,
        "lease_disk_blocks": 9,
        "max_waiting": 5,
        "speculation": "ngram",
        "draft_tokens": 3,
        "log_level": "debug",
    }
    arguments = [part for name, value in flags.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    config = parse([*required, *arguments])
    assert {name: getattr(config, name) for name in flags} == flags


def test_the_deterministic_mode_is_a_flag_alone(required: list[str]) -> None:
    assert parse([*required, "--deterministic"]).deterministic
    with pytest.raises(ConfigError, match="--deterministic needs --kv-layout slots"):
        parse([*required, "--deterministic", "--kv-layout", "paged"])


def test_a_draft_model_drafts_where_it_pays_or_not_at_all(required: list[str]) -> None:
    assert parse([*required, "--draft-model", "small"]).draft_model == Path("small")
    for speculation in ("ngram", "off"):
        with pytest.raises(ConfigError, match="--draft-model needs --speculation auto"):
            parse([*required, "--draft-model", "small", "--speculation", speculation])


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--block-size", "12"], "--block-size"),
        (["--block-size", "0"], "--block-size"),
        (["--chunk-tokens", "15"], "--chunk-tokens"),
        (["--slots", "0"], "--slots"),
        (["--blocks", "0"], "--blocks"),
        (["--threads", "-1"], "--threads"),
        (["--context-length", "0"], "--context-length"),
        (["--max-waiting", "0"], "--max-waiting"),
        (["--draft-tokens", "0"], "--draft-tokens"),
        (["--host-mib", "-1"], "--host-mib"),
        (["--disk-mib", "-1"], "--disk-mib"),
        (["--offload-priority", "101"], "--offload-priority"),
        (["--lease-blocks", "-1"], "--lease-blocks"),
        (["--lease-host-blocks", "-1"], "--lease-host-blocks"),
        (["--lease-disk-blocks", "-1"], "--lease-disk-blocks"),
    ],
)
def test_a_size_that_makes_no_sense_is_refused_by_name(required: list[str], flags: list[str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        parse([*required, *flags])


def test_a_missing_token_file_is_refused_with_its_path(required: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere: No such file"):
        parse([*required, "--token-file", str(tmp_path / "nowhere")])


def test_a_short_token_is_refused_and_not_repeated(required: list[str], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hunter2")
    with pytest.raises(ConfigError, match="shorter than 16") as caught:
        parse(required)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "flags",
    [
        ["--nonsense"],
        ["--dtype", "float16"],
        ["--device", "tpu"],
        ["--weights", "int3"],
        ["--port", "http"],
        ["--log-level", "loud"],
    ],
)
def test_a_flag_that_is_none_ends_with_usage(
    required: list[str], flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse([*required, *flags])
    assert caught.value.code == 2
    assert flags[0] in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["--port", "--token-file", "--model"])
def test_what_has_no_default_must_be_given(
    required: list[str], missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    at = required.index(missing)
    with pytest.raises(SystemExit):
        parse(required[:at] + required[at + 2 :])
    assert missing in capsys.readouterr().err
