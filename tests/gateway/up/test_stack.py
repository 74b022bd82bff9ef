import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import psutil

from gateway.up.demo import read_env
from tests.gateway.up.conftest import PATIENCE_S, FakeUp, alive, until

Start = Callable[..., FakeUp]


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_it_comes_up_says_how_to_use_it_and_goes_down_on_ctrl_c(fake_up: Start) -> None:
    up = fake_up()
    up.wait_for("Ctrl-C stops everything")
    key = read_env(up.home / "demo.env")["SALTWAY_KEY_ACME"]
    assert f"ready at http://127.0.0.1:{up.port}\n" in up.said
    assert f"curl http://127.0.0.1:{up.port}/v1/chat/completions" in up.said
    assert f"Bearer {key}'" in up.said
    assert f"http://127.0.0.1:{up.port}/admin" in up.said
    pids = up.pids()
    assert all(alive(pid) for pid in pids)
    assert up.end(signal.SIGINT) == 0
    assert not any(alive(pid) for pid in pids)
    assert list((up.home / "run").iterdir()) == []


def test_what_is_secret_is_the_owners_alone(fake_up: Start) -> None:
    up = fake_up()
    up.wait_for("ready at")
    for name in ("secret", "worker.token", "demo.env"):
        assert mode(up.home / name) == 0o600
    assert mode(up.home / "logs") == 0o700
    assert mode(up.home / "run") == 0o700


def test_a_second_run_keeps_secrets_and_keys(fake_up: Start) -> None:
    first = fake_up()
    first.wait_for("ready at")
    assert first.end() == 0
    kept = {name: (first.home / name).read_text() for name in ("secret", "worker.token", "demo.env")}
    second = fake_up(port=first.port)
    second.wait_for("ready at")
    assert {name: (second.home / name).read_text() for name in kept} == kept


def test_a_worker_that_is_killed_comes_back_at_the_same_address(fake_up: Start) -> None:
    up = fake_up()
    up.wait_for("ready at")
    before, other = up.pid("w0"), up.pid("w1")
    address = next(line for line in up.said.splitlines() if line.startswith("starting w0 at")).rpartition(":")[2]
    os.kill(before, signal.SIGKILL)
    up.wait_for("w0 stopped (signal 9); starting it again in 0.5 s")
    until(lambda: up.pid("w0") != before, "w0 is started again")
    until(lambda: answers(int(address)), "w0 listens again")
    assert alive(up.pid("w0"))
    assert up.pid("w1") == other


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_only_one_runs_from_a_home_folder(fake_up: Start) -> None:
    first = fake_up()
    first.wait_for("ready at")
    second = fake_up()
    assert second.process.wait(PATIENCE_S) == 1
    assert f"Saltway already runs from {first.home} (process {first.process.pid}); stop it" in second.said
    assert all(alive(pid) for pid in first.pids())


def test_a_port_in_use_is_said_and_nothing_is_started(fake_up: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        up = fake_up(port=taken.getsockname()[1])
        assert up.process.wait(PATIENCE_S) == 1
    assert up.said == f"saltway: Port {up.port} is in use; stop what listens there, or choose another " + (
        f"(make up PORT={up.port + 1 if up.port < 65535 else 8080}).\n"
    )
    assert list((up.home / "run").iterdir()) == []
    assert not (up.home / "saltway.db").exists()


def test_a_child_that_cannot_start_takes_everything_down_with_its_reason(fake_up: Start) -> None:
    up = fake_up(gateway_mode="broken")
    assert up.process.wait(PATIENCE_S) == 1
    log = up.home / "logs" / "gateway.log"
    assert f"gateway keeps stopping during its start; see {log}, which ends: no such tensor" in up.said
    assert "ready at" not in up.said
    ports = re.findall(r"^starting \w+ at http://127\.0\.0\.1:(\d+)", up.said, re.MULTILINE)
    assert len(ports) == 3
    # By their command lines, for their pid files are gone with them.
    assert not any(port in (one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"]) for port in ports)


def test_it_can_be_stopped_before_it_is_ready(fake_up: Start) -> None:
    up = fake_up(worker_mode="slow")
    up.wait_for("gateway is ready")
    pids = up.pids()
    assert up.end() == 0
    assert "ready at" not in up.said
    assert not any(alive(pid) for pid in pids)


def test_when_it_is_killed_itself_its_children_end_too(fake_up: Start) -> None:
    up = fake_up(worker_mode="deaf")
    up.wait_for("ready at")
    pids = up.pids()
    up.end(signal.SIGKILL)
    until(lambda: not any(alive(pid) for pid in pids), "the children end")


def test_a_second_ctrl_c_does_not_wait_for_a_child_that_will_not_end(fake_up: Start) -> None:
    up = fake_up(worker_mode="deaf")
    up.wait_for("ready at")
    pids = up.pids()
    up.process.send_signal(signal.SIGINT)
    up.wait_for("stopping")
    until(lambda: not alive(pids[2]), "the gateway ends")
    assert alive(pids[0])
    assert up.end(signal.SIGINT) == 0
    assert not any(alive(pid) for pid in pids)
