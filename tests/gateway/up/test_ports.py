import socket
from pathlib import Path

import pytest

from gateway.up import ports
from gateway.up.ports import LOWEST, free_ports, handed_out_from
from gateway.up.preflight import UpError


def test_free_ports_are_different_and_none_that_the_system_hands_out() -> None:
    found = free_ports(50)
    assert len(set(found)) == 50
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert max(found) < handed_out_from() <= server.getsockname()[1]


def test_a_port_that_somebody_listens_at_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    (taken,) = free_ports(1)
    monkeypatch.setattr(ports, "LOWEST", taken)
    monkeypatch.setattr(ports, "FEWEST", 1)
    monkeypatch.setattr(ports, "handed_out_from", lambda: taken + 1)
    assert free_ports(1) == [taken]
    with socket.create_server(("127.0.0.1", taken)), pytest.raises(UpError, match="Only 0 of 1 ports"):
        free_ports(1)


@pytest.mark.parametrize(("words", "first"), [("40000\t50000\n", 40_000), ("", 32_768), (None, 32_768)])
def test_where_the_system_begins_is_read_or_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str | None, first: int
) -> None:
    if words is not None:
        (tmp_path / "range").write_text(words)
    monkeypatch.setattr(ports, "HANDED_OUT", tmp_path / "range")
    assert handed_out_from() == first


def test_where_the_system_leaves_few_there_are_ports_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "handed_out_from", lambda: 1024)
    (found,) = free_ports(1)
    assert found >= LOWEST
