"""The whole life of `saltway up`, in order."""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from gateway.settings import Settings
from gateway.up import plan, preflight
from gateway.up.child import Child, Process
from gateway.up.demo import ensure_demo
from gateway.up.home import Home, ensure_secret
from gateway.up.model import ModelFile, find_model
from gateway.up.preflight import UpError
from gateway.up.ready import wait_until_ready
from gateway.up.supervisor import POLL_S, Say, Supervisor
from migrations import upgrade
from tenants import Database, now_ms

GRACE_S = 15.0  # the gateway lets running streams end for 10 s, then writes what is left of the ledger

WorkerPlan = Callable[[Settings, ModelFile], list[Process]]
GatewayPlan = Callable[[Settings], Process]


def up(
    settings: Settings,
    say: Say,
    workers: WorkerPlan = plan.worker_processes,
    gateway: GatewayPlan = plan.gateway_process,
) -> int:
    """Runs the stack until a signal; returns 0 then. UpError when it cannot start, with nothing left running."""
    preflight.check_packages()
    preflight.check_workers(settings)
    preflight.check_disk(settings.home)
    model = None if settings.worker_urls else find_model(settings.model)
    home = Home(settings.home)
    home.prepare()
    with home.lock(), signals() as stopped:
        preflight.check_port(settings.host, settings.port)
        say(f"home {home.path}")
        variables = _prepare(settings, home)
        say(f"database is current; demo tenants and keys are in {home.demo_env}")
        processes = workers(settings, model) if model else []
        front = gateway(_joined(settings, processes))
        _announce(say, model, processes, front)
        stages = [[Child(process, home) for process in processes], [Child(front, home)]]
        return _run(Supervisor(stages, say), say, stopped, _welcome(variables, model, home))


class Signals:
    """How often this process was asked to stop. A plain counter: a handler may take no lock."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> bool:
        return self.count > 0

    def again(self) -> bool:
        return self.count > 1


@contextmanager
def signals() -> Iterator[Signals]:
    """Counts SIGINT, SIGTERM and SIGHUP in place of dying of them, so that children are always stopped in order."""
    counted = Signals()

    def count(_number: int, _frame: object) -> None:
        counted.count += 1

    watched = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, count) for number in watched}
    try:
        yield counted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(supervisor: Supervisor, say: Say, stopped: Signals, welcome: str) -> int:
    try:
        supervisor.start()
        if wait_until_ready(supervisor, say, stopped):
            say(welcome)
        while not stopped():
            supervisor.tend()
            time.sleep(POLL_S)
        say("stopping")
    finally:
        supervisor.stop(GRACE_S, hurry=stopped.again)
    say("stopped")
    return 0


def _prepare(settings: Settings, home: Home) -> Mapping[str, str]:
    """Secrets, schema, demo tenants. Returns the demo's variables."""
    try:
        ensure_secret(settings.secret_path)
        ensure_secret(settings.worker_token_path)
        return asyncio.run(_prepare_database(settings, home))
    except (SQLAlchemyError, OSError, ValueError) as error:
        # The class alone: a driver's message may hold the address, and with it a password.
        raise UpError(
            f"Home folder and database cannot be prepared ({type(error).__name__}); "
            f"check that {home.path} can be written and that SALTWAY_DATABASE_URL is right."
        ) from None


async def _prepare_database(settings: Settings, home: Home) -> Mapping[str, str]:
    await upgrade(settings.database)
    async with Database(settings.database) as database:
        return await ensure_demo(database, home.demo_env, settings.url, now_ms())


def _joined(settings: Settings, workers: list[Process]) -> Settings:
    """The gateway's own settings: with the addresses and the token of the workers just planned."""
    if not workers:
        return settings
    return msgspec.structs.replace(
        settings, worker_urls=tuple(worker.url for worker in workers), worker_token=workers[0].token
    )


def _announce(say: Say, model: ModelFile | None, workers: list[Process], gateway: Process) -> None:
    if model is not None:
        say(f"model {model.name} ({model.megabytes} MB)")
    for process in (*workers, gateway):
        say(f"starting {process.name} at {process.url}")


def _welcome(variables: Mapping[str, str], model: ModelFile | None, home: Home) -> str:
    url = variables["SALTWAY_URL"]
    name = model.name if model else "MODEL"
    return f"""ready at {url}

  curl {url}/v1/chat/completions \\
    -H 'Authorization: Bearer {variables["SALTWAY_KEY_ACME"]}' -H 'Content-Type: application/json' \\
    -d '{{"model": "{name}", "max_tokens": 32, "messages": [{{"role": "user", "content": "What is a salt way?"}}]}}'

  dashboard {url}/admin (its key is SALTWAY_ADMIN_KEY in {home.demo_env})
  Ctrl-C stops everything
"""
