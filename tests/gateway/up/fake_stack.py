"""`saltway up` with fake children: `python -m tests.gateway.up.fake_stack HOME PORT WORKER_MODE GATEWAY_MODE`."""

import sys
from pathlib import Path

import click

from gateway.settings import Settings
from gateway.up import UpError, up
from gateway.up.child import Process
from gateway.up.model import ModelFile
from gateway.up.ports import free_ports

CHILD = str(Path(__file__).with_name("fake_child.py"))


def process(name: str, port: int, mode: str) -> Process:
    return Process(name, (sys.executable, CHILD, str(port), mode), f"http://127.0.0.1:{port}", token="t")


def main(home: str, port: str, worker_mode: str, gateway_mode: str) -> int:
    model = Path(home) / "tiny.gguf"
    settings = Settings(home=Path(home), port=int(port), model=str(model))

    def workers(settings: Settings, _model: ModelFile) -> list[Process]:
        ports = free_ports(settings.workers)
        return [process(f"w{number}", port, worker_mode) for number, port in enumerate(ports)]

    try:
        return up(settings, click.echo, workers, lambda settings: process("gateway", settings.port, gateway_mode))
    except UpError as error:
        click.echo(f"saltway: {error}", err=True)
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
