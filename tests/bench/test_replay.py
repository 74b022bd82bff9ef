"""Laws of the simulated workers and of every policy on them; the figures themselves are in docs/benchmarks.md."""

import json
import random
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.replay.__main__ import main
from bench.replay.engine import Blocks, Machine
from bench.replay.outcome import Outcome
from bench.replay.plot import svg
from bench.replay.policies import POLICIES, DynamoCost, SGLangCacheAware
from bench.replay.simulation import Simulation
from bench.replay.trace import Request, Trace, load
from cacheplane.identity import BlockChain
from cacheplane.wire import BlockRemoved, BlockStored, Tier

EVERY = pytest.mark.parametrize("name", list(POLICIES))
AMPLE = Machine(blocks=10**6)


def chain(*ids: int) -> BlockChain:
    """Blocks by number, linked as a prompt's are."""
    hashes, parent = [], 0
    for id_ in ids:
        parent = hash((parent, id_)) & (1 << 64) - 1
        hashes.append(parent.to_bytes(8, "little") * 2)
    return BlockChain(tuple(hashes), 512)


def request(at: float, *ids: int, output: int = 1) -> Request:
    return Request(at, chain(*ids), 512 * len(ids) + 1, output)


def sessions(count: int, turns: int, gap: float = 0.3) -> Trace:
    """Sessions that share a first block and grow by one or two, interleaved."""
    draw = random.Random(count * 1000 + turns)
    prompts = [[0, 100 * number + 1] for number in range(count)]
    requests: list[Request] = []
    for turn in range(turns):
        for number in draw.sample(range(count), count):
            prompts[number] += [1000 * turn + 100 * number + extra for extra in range(2, 2 + draw.randint(1, 2))]
            requests.append(request(gap * len(requests), *prompts[number], output=draw.randint(1, 50)))
    return Trace("sessions", requests)


def play(trace: Trace, name: str, workers: int = 3, machine: Machine = AMPLE) -> Outcome:
    return Simulation(trace, machine, workers, POLICIES[name](workers)).run()


@EVERY
def test_no_policy_beats_the_bound_and_every_token_is_computed_or_reused(name: str) -> None:
    trace = sessions(12, 6)
    outcome = play(trace, name)
    assert 0 < outcome.hit_rate <= trace.bound
    reused = round(outcome.hit_rate * trace.blocks) * 512
    assert outcome.computed_tokens + reused == sum(request.prompt_tokens for request in trace.requests)
    assert sum(outcome.by_worker) == outcome.computed_tokens


@EVERY
def test_one_worker_without_limits_reaches_the_bound_whatever_the_policy(name: str) -> None:
    trace = sessions(8, 5)
    outcome = play(trace, name, workers=1)
    assert outcome.hit_rate == pytest.approx(trace.bound)
    assert outcome.imbalance == 1.0


@EVERY
def test_a_replay_is_deterministic(name: str) -> None:
    trace = sessions(10, 4)
    first, second = (play(trace, name, machine=Machine(blocks=40)) for _ in range(2))
    assert (first.hit_rate, first.by_worker, first.ttft_p99_ms) == (
        second.hit_rate,
        second.by_worker,
        second.ttft_p99_ms,
    )


def test_ours_returns_sessions_where_round_robin_loses_them_and_longest_overlap_crowds_them() -> None:
    trace = sessions(64, 8, gap=0.05)
    ours, turns, crowd = (play(trace, name, 8) for name in ("saltway", "round-robin", "longest-overlap"))
    assert ours.hit_rate > 1.3 * turns.hit_rate
    assert ours.imbalance < crowd.imbalance
    assert ours.ttft_mean_ms < min(turns.ttft_mean_ms, crowd.ttft_mean_ms)


def test_a_smaller_cache_never_helps_a_single_worker() -> None:
    trace = sessions(10, 6)
    rates = [play(trace, "saltway", 1, Machine(blocks=blocks)).hit_rate for blocks in (10, 40, 200)]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1]


def test_a_host_tier_gives_back_what_the_device_had_to_evict_at_the_price_of_loading() -> None:
    trace = sessions(10, 6)
    without, beside = (play(trace, "saltway", 2, Machine(blocks=30, host_blocks=host)) for host in (0, 1000))
    assert beside.hit_rate == pytest.approx(play(trace, "saltway", 2).hit_rate, abs=0.02)
    assert without.hit_rate < beside.hit_rate


def test_prompts_are_computed_one_after_another_and_match_when_their_turn_comes() -> None:
    machine = Machine(blocks=100, prefill_tps=512)
    trace = Trace("two", [request(0.0, 1, 2), request(0.0, 1, 2, 3)])
    outcome = Simulation(trace, machine, 1, POLICIES["round-robin"](1)).run()
    first, second = 1025 / 512, 1025 / 512 + 513 / 512
    assert outcome.hit_rate == pytest.approx(2 / 5)
    assert outcome.ttft_mean_ms == pytest.approx(1000 * (first + second) / 2)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), max_size=30), st.integers(1, 8), st.integers(0, 8))
def test_block_events_tell_exactly_what_the_tiers_hold(prompts: list[list[int]], device: int, host: int) -> None:
    blocks, told = Blocks(device, host), {Tier.DEVICE: set[bytes](), Tier.HOST: set[bytes]()}
    for ids in prompts:
        for event in blocks.store(chain(*ids).hashes, 512):
            if isinstance(event, BlockStored):
                told[event.tier].update(event.hashes)
            elif isinstance(event, BlockRemoved):
                told[event.tier].difference_update(event.hashes)
        assert told == {Tier.DEVICE: set(blocks.device), Tier.HOST: set(blocks.host)}
        assert len(blocks.device) <= device
        assert len(blocks.host) <= host


def test_the_deepest_block_of_a_chain_goes_first() -> None:
    blocks = Blocks(3, 0)
    blocks.store(chain(1, 2, 3).hashes, 512)
    blocks.store(chain(9).hashes, 512)
    assert blocks.match(chain(1, 2, 3).hashes) == (2, 0)


def test_sglang_follows_its_trees_until_load_is_out_of_bounds() -> None:
    policy = SGLangCacheAware(2)
    home = policy.choose(request(0, 1, 2, 3), 0)
    assert policy.choose(request(0, 1, 2, 4), 0) == home  # two of three blocks are over the threshold
    assert policy.choose(request(0, 1, 5, 6, 7), 0) == 1 - home  # one of four is not: the smaller tree
    policy.running = [0, 0]
    policy.running[home] = 65
    assert policy.choose(request(0, 1, 2, 3), 0) == 1 - home


def test_dynamos_cost_weighs_computing_against_active_blocks() -> None:
    policy = DynamoCost(2)
    first = request(0, *range(8))
    home = policy.choose(first, 0)
    assert policy.choose(request(0, 100, 101), 0) == 1 - home
    policy.prefilled(first, home)
    policy.ended(first, home, 0)
    assert policy.computing[home] == 0
    assert not policy.active[home]


def test_a_mooncake_trace_is_read_with_its_padded_last_block(tmp_path: Path) -> None:
    path = tmp_path / "tiny.jsonl"
    rows = [
        {"timestamp": 1000, "input_length": 700, "output_length": 5, "hash_ids": [0, 1]},
        {"timestamp": 2000, "input_length": 1500, "output_length": 5, "hash_ids": [0, 1, 2]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = load(path)
    assert [(one.at, len(one.chain), one.prompt_tokens) for one in trace.requests] == [(1.0, 2, 1025), (2.0, 3, 1537)]
    assert trace.bound == pytest.approx(2 / 5)


def test_a_line_that_is_no_request_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [0]}\n{"timestamp": 1}\n')
    with pytest.raises(ValueError, match="line 2"):
        load(path)


def test_the_command_prints_json_and_draws_the_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, plot = tmp_path / "tiny.jsonl", tmp_path / "plot.svg"
    rows = [
        {"timestamp": 100 * at, "input_length": 1000, "output_length": 3, "hash_ids": [0, at % 4 + 1]}
        for at in range(20)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(sys, "argv", ["replay", str(path), "--workers", "2", "--json", "--plot", str(plot)])
    assert main() == 0
    figures = json.loads(capsys.readouterr().out)
    assert set(figures["policies"]) == set(POLICIES)
    assert all(one["hit_rate"] <= figures["bound"] for one in figures["policies"].values())
    drawing = ET.fromstring(plot.read_text())
    assert len(drawing.findall("{http://www.w3.org/2000/svg}circle")) == 2 * len(POLICIES)


def test_a_plot_of_one_perfect_policy_is_drawn_too() -> None:
    outcome = Outcome(0.5, 1.0, 1, 1, 1, 1, 1, 1, [1])
    ET.fromstring(svg("a < b", {"one": outcome}, 0.5))
