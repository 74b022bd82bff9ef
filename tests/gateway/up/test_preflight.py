import re
import socket
from pathlib import Path

import pytest

from gateway.settings import Settings
from gateway.up.home import Home
from gateway.up.preflight import UpError, check_disk, check_packages, check_port, check_workers


def test_what_is_there_passes(tmp_path: Path) -> None:
    check_packages()
    check_disk(tmp_path / "not" / "yet" / "made", needed=1)
    check_workers(Settings())
    check_workers(Settings(worker_urls=("http://w",), worker_token="t"))


def test_missing_packages_are_named() -> None:
    with pytest.raises(UpError, match=r"missing \(no_such_package\); run `make env`"):
        check_packages(("click", "no_such_package"))


def test_a_full_disk_is_said_with_both_sizes(tmp_path: Path) -> None:
    with pytest.raises(UpError, match=rf"Only \d+ MiB are free at {re.escape(str(tmp_path))} and \d+ are needed"):
        check_disk(tmp_path / "home", needed=2**70)


def test_a_port_that_was_just_left_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(UpError, match=f"Port {port} is in use; .*make up PORT="):
            check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(UpError, match=r"Cannot listen at 192\.0\.2\.1 .* SALTWAY_HOST"):
        check_port("192.0.2.1", 8080)


def test_workers_elsewhere_need_their_token() -> None:
    with pytest.raises(UpError, match="SALTWAY_WORKER_TOKEN"):
        check_workers(Settings(worker_urls=("http://w",)))


def test_a_home_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UpError, match=r"Cannot write to .*file/home .* SALTWAY_HOME"):
        Home(tmp_path / "file" / "home").prepare()
