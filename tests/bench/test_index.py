"""The synthetic fleet says what it holds, and the command prints what it promises; figures: docs/benchmarks.md."""

import json
import sys

import pytest

from bench.index import measure
from bench.index.__main__ import main
from bench.index.fleet import SESSION_BLOCKS, TEMPLATE_BLOCKS, TEMPLATES, SyntheticFleet, batch
from cacheplane.index import Overlap, PrefixIndex


def test_what_a_fleet_tells_is_what_it_holds() -> None:
    fleet, index = SyntheticFleet(4, 20_000), PrefixIndex(max_blocks=100_000)
    for session in fleet.sessions:
        for worker, event in session.stored():
            index.apply(fleet.name(worker), batch(event))
    for number, session in enumerate(fleet.sessions):
        found = index.match(session.keys)
        assert found[fleet.name(number % 4)] == Overlap(device=SESSION_BLOCKS)
        assert set(found) >= {fleet.name(worker) for worker, _ in session.holders}
    assert fleet.blocks == TEMPLATES * TEMPLATE_BLOCKS + len(fleet.sessions) * (SESSION_BLOCKS - TEMPLATE_BLOCKS)
    for session in fleet.sessions:
        for worker, event in session.removed():
            index.apply(fleet.name(worker), batch(event))
    assert max(overlap.blocks for overlap in index.match(fleet.sessions[0].keys).values()) == TEMPLATE_BLOCKS


def test_churn_keeps_the_fleet_as_large_as_it_was() -> None:
    fleet, index = SyntheticFleet(4, 10_000), PrefixIndex(max_blocks=100_000)
    measure.told(index, fleet, [event for session in fleet.sessions for event in session.stored()])
    figures = measure.churn(fleet, index, 50_000)
    assert figures.events >= 50_000
    assert figures.bytes_late <= 1.5 * figures.bytes_early
    assert len(fleet.sessions) == 5


def test_the_command_prints_a_table_and_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--workers 4,8 --blocks 6000 --churn 9000 --json"
    monkeypatch.setattr(sys, "argv", ["bench.index", *options.split()])
    monkeypatch.setattr("bench.report.save", lambda *_: None)
    monkeypatch.setattr(measure, "LOOKUPS", 5)
    main()
    printed = capsys.readouterr().out
    figures = json.loads(printed[printed.index("{") :])
    promised = {"find_2000_us", "find_256_us", "apply_blocks_per_s", "bytes_per_block"}
    promised |= {"hash_32k_ms", "hash_32k_list_ms", "growth_stall_ms"}
    assert promised <= figures.keys()
    assert promised <= figures["workers_8"].keys()
    assert "look-up of 2,000 blocks, us, 8 workers" in printed
