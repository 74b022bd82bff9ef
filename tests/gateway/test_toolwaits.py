"""What is learned of the time that tools take, without a gateway around it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tools.hermes import CallStart
from gateway.toolwaits import (
    DECAY,
    DEFAULT_SECONDS,
    EDGES,
    MAX_CALLS,
    MAX_TENANTS,
    MAX_TOOLS,
    PRIOR,
    QUANTILE,
    ToolWaits,
    WaitEstimate,
)


class Office:
    """Calls that are made and answered while a clock is turned by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits = ToolWaits(lambda: self.now)
        self.made = 0

    def call(self, *tools: str, tenant: str = "acme", session: str = "s") -> tuple[list[str], float]:
        """The ids of a turn that calls these tools, and how long their results are waited for."""
        calls = [CallStart(index, f"{self.made}.{index}", tool) for index, tool in enumerate(tools)]
        self.made += 1
        return [call.id for call in calls], self.waits.made(tenant, calls, session)

    def work(self, *tools: str, seconds: float, times: int = 1, tenant: str = "acme") -> None:
        for _ in range(times):
            ids, _ = self.call(*tools, tenant=tenant)
            self.now += seconds
            self.waits.answered(tenant, ids)

    def wait_for(self, *tools: str, tenant: str = "acme") -> float:
        return self.call(*tools, tenant=tenant)[1]


@pytest.fixture
def office() -> Office:
    return Office()


@given(st.lists(st.floats(0, 4000), max_size=120))
def test_an_estimate_holds_for_nearly_all_of_what_was_waited_lately(waits: list[float]) -> None:
    estimate = WaitEstimate()
    for seconds in waits:
        estimate.learn(seconds)
    aged = [(DEFAULT_SECONDS, PRIOR * DECAY ** len(waits))]
    aged += [(min(seconds, EDGES[-1]), DECAY**age) for age, seconds in enumerate(reversed(waits))]
    total = sum(weight for _, weight in aged)

    def share(within: float) -> float:
        return sum(weight for seconds, weight in aged if seconds <= within) / total

    assert share(estimate.seconds) >= QUANTILE - 1e-9
    shorter = [edge for edge in EDGES if edge < estimate.seconds]
    assert not shorter or share(shorter[-1]) < QUANTILE + 1e-9


def test_before_anything_is_known_a_tool_gets_the_default(office: Office) -> None:
    assert office.wait_for("weigh") == DEFAULT_SECONDS


@pytest.mark.parametrize(("seconds", "learned"), [(0.1, 5), (6, 7.5), (30, 30), (500, 640), (90_000, 900)])
def test_a_tool_is_learned_within_ten_calls_and_within_bounds(office: Office, seconds: float, learned: float) -> None:
    office.work("weigh", seconds=seconds, times=10)
    assert office.wait_for("weigh") == learned


def test_one_quick_result_does_not_make_a_quick_tool_and_a_slower_one_is_learned_soon(office: Office) -> None:
    office.work("weigh", seconds=1)
    assert office.wait_for("weigh") == DEFAULT_SECONDS
    office.work("weigh", seconds=1, times=60)
    assert office.wait_for("weigh") == 5
    office.work("weigh", seconds=200, times=4)
    assert office.wait_for("weigh") == 240


def test_a_turn_of_several_calls_waits_for_the_slowest_and_tells_of_no_other(office: Office) -> None:
    office.work("glance", seconds=1, times=20)
    office.work("dig", seconds=300, times=20)
    assert office.wait_for("glance", "dig", "glance") == 320
    office.work("dig", "glance", seconds=310, times=20)
    assert office.wait_for("glance") == 5


def test_tenants_learn_apart_and_know_only_their_own_calls(office: Office) -> None:
    office.work("weigh", seconds=1, times=20)
    assert office.wait_for("weigh", tenant="globex") == DEFAULT_SECONDS
    ids, _ = office.call("weigh", session="mine")
    assert office.waits.answered("globex", ids) == office.waits.answered("initech", ids) == ""
    assert office.waits.answered("acme", ids) == "mine"


def test_a_request_that_is_sent_again_has_the_session_and_teaches_nothing(office: Office) -> None:
    office.work("weigh", seconds=1, times=20)
    ids, _ = office.call("weigh", session="mine")
    office.now += 1
    for _ in range(20):
        assert office.waits.answered("acme", ids) == "mine"
        office.now += 600
    assert office.wait_for("weigh") == 5


def test_calls_beyond_the_bound_are_forgotten_oldest_first(office: Office) -> None:
    turns = [office.call("weigh", session=str(number))[0] for number in range(MAX_CALLS + 1)]
    assert [office.waits.answered("acme", turns[number]) for number in (0, 1, MAX_CALLS)] == ["", "1", str(MAX_CALLS)]


def test_tools_beyond_the_bound_are_forgotten(office: Office) -> None:
    for number in range(MAX_TOOLS):
        office.work(f"t{number}", seconds=1, times=10)
    office.work("t0", seconds=1)
    office.work("one more", seconds=1, times=10)
    assert [office.wait_for(tool) for tool in ("t0", "t1", "t2", "one more")] == [5, DEFAULT_SECONDS, 5, 5]


def test_tenants_beyond_the_bound_are_forgotten(office: Office) -> None:
    for number in range(MAX_TENANTS + 1):
        office.work("weigh", seconds=1, times=10, tenant=f"t{number}")
    assert [office.wait_for("weigh", tenant=tenant) for tenant in ("t1", "t0", "t256")] == [5, DEFAULT_SECONDS, 5]
