from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.up.child import Child, Process
from gateway.up.home import Home
from gateway.up.supervisor import LONGEST_DELAY_S, STEADY_S, Supervisor

# What was asked of which child, in order.
Transcript = list[tuple[str, str]]


class ToldChild(Child):
    """A child that runs and dies when the test says so."""

    def __init__(self, name: str, home: Home, transcript: Transcript, *, stubborn: bool = False) -> None:
        super().__init__(Process(name, (), "http://127.0.0.1:1"), home)
        self.up = False
        self._transcript = transcript
        self._stubborn = stubborn

    def start(self) -> None:
        self.up = True
        self._transcript.append(("start", self.name))

    @property
    def running(self) -> bool:
        return self.up

    @property
    def exit_code(self) -> int | None:
        return 1

    def terminate(self) -> None:
        self.up = self.up and self._stubborn
        self._transcript.append(("terminate", self.name))

    def kill(self) -> None:
        if self.up:
            self._transcript.append(("kill", self.name))
        self.up = False


class Bench:
    """A supervisor of two workers and a gateway, with a clock of its own."""

    def __init__(self, path: Path, stubborn: Sequence[str] = ()) -> None:
        self.now = 1_000.0
        self.said: list[str] = []
        self.transcript: Transcript = []
        self.children = {
            name: ToldChild(name, Home(path), self.transcript, stubborn=name in stubborn)
            for name in ("w0", "w1", "gateway")
        }
        workers, gateway = [self.children["w0"], self.children["w1"]], [self.children["gateway"]]
        self.supervisor = Supervisor([workers, gateway], self.said.append, lambda: self.now)
        self.supervisor.start()

    def restarts_after(self, name: str) -> float:
        """Lets a child die and returns the seconds until it runs again."""
        self.children[name].up = False
        self.supervisor.tend()
        died = self.now
        while not self.children[name].up:
            self.now += 0.25
            self.supervisor.tend()
        return self.now - died


def test_a_child_that_keeps_dying_is_restarted_later_and_later(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    delays = [bench.restarts_after("w0") for _ in range(8)]
    assert delays == [0.5, 1, 2, 4, 8, LONGEST_DELAY_S, LONGEST_DELAY_S, LONGEST_DELAY_S]
    assert bench.said[0] == "w0 stopped (exit code 1); starting it again in 0.5 s"
    assert {name for _, name in bench.transcript[3:]} == {"w0"}


def test_a_child_that_ran_steadily_is_restarted_at_once_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert [bench.restarts_after("w0") for _ in range(3)] == [0.5, 1, 2]
    bench.now += STEADY_S
    assert bench.restarts_after("w0") == 0.5


def test_the_last_stage_is_stopped_first(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.supervisor.stop(grace_s=5)
    assert bench.transcript[3:] == [("terminate", "gateway"), ("terminate", "w0"), ("terminate", "w1")]


@pytest.mark.parametrize("hurried", [False, True])
def test_a_child_that_does_not_end_is_killed(tmp_path: Path, hurried: bool) -> None:
    bench = Bench(tmp_path, stubborn=["w1"])
    bench.supervisor.stop(grace_s=3600 if hurried else 0.01, hurry=lambda: hurried)
    assert bench.transcript[-1] == ("kill", "w1")
    assert not any(child.up for child in bench.children.values())
