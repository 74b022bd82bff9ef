import os
from pathlib import Path

import pytest

from gateway.settings import Settings, load
from gateway.up.model import ModelFile
from gateway.up.plan import gateway_process, threads, worker_processes

CORES = len(os.sched_getaffinity(0))


def flags(argv: tuple[str, ...]) -> dict[str, str]:
    assert argv[1:3] == ("-m", "worker")
    return dict(zip(argv[3::2], argv[4::2], strict=True))


def test_each_worker_gets_its_own_port_and_name_and_all_share_the_rest(tmp_path: Path) -> None:
    (tmp_path / "worker.token").write_text("secret-token\n")
    settings = Settings(
        home=tmp_path,
        workers=2,
        threads=3,
        device="cpu",
        dtype="float32",
        weights="int4",
        kv_dtype="fp8",
        context_length=512,
    )
    first, second = worker_processes(settings, ModelFile(Path("/m.gguf"), "m"))
    assert flags(first.argv) == {
        "--port": first.url.rpartition(":")[2],
        "--worker-id": "w0",
        "--token-file": str(tmp_path / "worker.token"),
        "--model": "/m.gguf",
        "--name": "m",
        "--threads": "3",
        "--device": "cpu",
        "--dtype": "float32",
        "--weights": "int4",
        "--kv-dtype": "fp8",
        "--log-level": "info",
        "--blocks": "2048",
        "--host-mib": "512",
        "--disk-mib": "1024",
        "--disk-folder": str(tmp_path / "kv" / "w0"),
        "--context-length": "512",
    }
    assert flags(second.argv)["--disk-folder"] == str(tmp_path / "kv" / "w1")
    assert (second.name, flags(second.argv)["--worker-id"]) == ("w1", "w1")
    assert first.url != second.url
    assert first.token == "secret-token"
    assert "secret-token" not in f"{first.argv}{first}"


def test_the_models_own_context_length_is_the_workers_affair(tmp_path: Path) -> None:
    (tmp_path / "worker.token").write_text("t")
    (worker,) = worker_processes(Settings(home=tmp_path, workers=1), ModelFile(Path("/m.gguf"), "m"))
    assert "--context-length" not in worker.argv


def test_the_gateway_gets_its_settings_by_environment_alone() -> None:
    settings = Settings(port=9000, worker_urls=("http://127.0.0.1:1",), worker_token="secret-token")
    process = gateway_process(settings)
    assert load(environ=process.environment, folder=Path("/")).environment() == settings.environment()
    assert process.argv[1:] == ("-m", "gateway", "serve")
    assert "secret-token" not in f"{process.argv}{process}"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [(Settings(workers=1), CORES), (Settings(workers=64), max(1, CORES // 64)), (Settings(threads=5), 5)],
)
def test_the_cores_are_shared(settings: Settings, expected: int) -> None:
    assert threads(settings) == expected
