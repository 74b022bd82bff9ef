"""The eviction cliff on small made-up sessions: real KV memory, worked-out times."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

from bench.cliff import Rates, made_up_sessions, recorded_sessions, replay, turns_of

RATES = Rates(prefill=100.0, host=10_000.0, disk=1_000.0)


def test_turns_of_all_sessions_come_in_order_of_time_and_the_sessions_start_apart() -> None:
    turns = list(turns_of(made_up_sessions(count=3, turns=4, start=20)))
    assert [turn.at for turn in turns] == sorted(turn.at for turn in turns)
    assert [turn.session for turn in turns if len(turn.blocks) == 20] == [0, 1, 2]
    assert {turn.session: turn.at for turn in reversed(turns)} == {0: 0.0, 1: 20.0, 2: 40.0}


def test_the_lower_tiers_bring_back_what_a_third_of_the_pool_loses() -> None:
    rows = {row["configuration"]: row for row in replay(made_up_sessions(count=6, turns=4, start=20), RATES)}
    bound = rows["all on the device"]["hit_rate"]
    assert rows["device"]["hit_rate"] < rows["host"]["hit_rate"] <= rows["host + disk"]["hit_rate"] <= bound
    assert rows["host + disk"]["ttft_p50_ms"] < rows["device"]["ttft_p50_ms"]
    assert rows["device"]["offloaded"] == rows["device"]["written"] == 0
    assert rows["host"]["offloaded"] > 0


def test_leases_never_cost_hits_when_the_sessions_at_work_change() -> None:
    """Budgets that refused the newest lease kept sessions that had gone quiet, and lost 0.9 points."""
    sessions = made_up_sessions(count=6, turns=4, start=20)
    for session in sessions:
        for request in session:
            request["stop"] = "tool_use"
    rows = {row["configuration"]: row for row in replay(sessions, RATES)}
    assert rows["device + leases"]["hit_rate"] >= rows["device"]["hit_rate"]


def test_recorded_sessions_are_the_first_whose_prompts_are_short_enough(tmp_path: Path) -> None:
    path = tmp_path / "sessions.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        _add(archive, "b.json", [{"t": 0.0, "hash_ids": [1, 2], "stop": "tool_use"}])
        _add(archive, "a.json", [{"t": 0.0, "hash_ids": list(range(50))}])
        _add(archive, "c.json", [{"t": 1.0, "hash_ids": [3]}, {"t": 2.0, "hash_ids": []}])
        _add(archive, "d.json", [{"t": 1.0, "hash_ids": [4]}])
    found = recorded_sessions(path, count=2, most_blocks=10)
    assert [[request["hash_ids"] for request in session] for session in found] == [[[1, 2]], [[3]]]


def _add(archive: tarfile.TarFile, name: str, requests: list[dict[str, Any]]) -> None:
    raw = json.dumps({"requests": requests}).encode()
    member = tarfile.TarInfo(name)
    member.size = len(raw)
    archive.addfile(member, io.BytesIO(raw))
