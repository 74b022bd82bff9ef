"""Every edge of the recovery machine, and the law that it exists for."""

import pytest

from cacheplane.stream import Action, Phase, StreamState, broken, observe, replayed, restored

LIVE = StreamState(Phase.LIVE, epoch=1, seq=5, heard=5, former=9)
NUMBERED = StreamState(Phase.LIVE, epoch=None, seq=5, heard=5)  # an engine without epochs


def at(phase: Phase, state: StreamState = LIVE) -> StreamState:
    return StreamState(phase, state.epoch, state.seq, state.heard, state.former)


@pytest.mark.parametrize(
    ("before", "epoch", "seq", "phase", "last", "action"),
    [
        (StreamState(), 1, 0, Phase.INITIAL, -1, Action.SNAPSHOT),
        (StreamState(), None, 7, Phase.INITIAL, -1, Action.SNAPSHOT),
        (LIVE, 1, 6, Phase.LIVE, 6, Action.APPLY),
        (LIVE, 1, 5, Phase.LIVE, 5, Action.DROP),
        (LIVE, 1, 0, Phase.LIVE, 5, Action.DROP),
        (LIVE, 1, 7, Phase.GAP, 5, Action.REPLAY),
        (LIVE, 2, 0, Phase.REWIND, -1, Action.SNAPSHOT),
        (LIVE, 2, 6, Phase.REWIND, -1, Action.SNAPSHOT),
        (LIVE, None, 6, Phase.REWIND, -1, Action.SNAPSHOT),
        (LIVE, 9, 6, Phase.LIVE, 5, Action.DROP),
        (at(Phase.GAP), 1, 6, Phase.LIVE, 6, Action.APPLY),
        (at(Phase.GAP), 1, 5, Phase.LIVE, 5, Action.DROP),
        (at(Phase.GAP), 1, 7, Phase.STALE, 5, Action.SNAPSHOT),
        (at(Phase.GAP), 2, 7, Phase.REWIND, -1, Action.SNAPSHOT),
        (at(Phase.GAP), 9, 7, Phase.GAP, 5, Action.DROP),
        (at(Phase.STALE), 1, 6, Phase.STALE, 5, Action.SNAPSHOT),
        (at(Phase.STALE), 2, 6, Phase.REWIND, -1, Action.SNAPSHOT),
        (at(Phase.STALE), 9, 6, Phase.STALE, 5, Action.DROP),
        (at(Phase.REWIND), 1, 6, Phase.REWIND, 5, Action.SNAPSHOT),
        (at(Phase.REWIND), 2, 0, Phase.REWIND, -1, Action.SNAPSHOT),
        (at(Phase.REWIND), 9, 6, Phase.REWIND, 5, Action.DROP),
        (NUMBERED, None, 6, Phase.LIVE, 6, Action.APPLY),
        (NUMBERED, None, 5, Phase.LIVE, 5, Action.DROP),
        (NUMBERED, None, 8, Phase.GAP, 5, Action.REPLAY),
        (NUMBERED, None, 4, Phase.REWIND, -1, Action.SNAPSHOT),
        (NUMBERED, 3, 6, Phase.REWIND, -1, Action.SNAPSHOT),
        (StreamState(Phase.LIVE, None, 0, 0), None, 0, Phase.REWIND, -1, Action.SNAPSHOT),
        (StreamState(Phase.LIVE, None, 9, 5), None, 7, Phase.LIVE, 9, Action.DROP),
    ],
)
def test_a_live_message(
    before: StreamState, epoch: int | None, seq: int, phase: Phase, last: int, action: Action
) -> None:
    after, answer = observe(before, epoch, seq)
    assert (after.phase, after.seq, answer) == (phase, last, action)


@pytest.mark.parametrize(
    ("before", "epoch", "seq", "phase", "last", "action"),
    [
        (LIVE, 1, 6, Phase.LIVE, 6, Action.APPLY),
        (LIVE, 1, 5, Phase.LIVE, 5, Action.DROP),
        (LIVE, 1, 7, Phase.STALE, 5, Action.SNAPSHOT),
        (LIVE, 2, 6, Phase.REWIND, -1, Action.SNAPSHOT),
        (at(Phase.GAP), 1, 6, Phase.GAP, 6, Action.APPLY),
        (at(Phase.GAP), 1, 4, Phase.GAP, 5, Action.DROP),
        (at(Phase.GAP), 1, 8, Phase.STALE, 5, Action.SNAPSHOT),
        (at(Phase.GAP), 2, 0, Phase.REWIND, -1, Action.SNAPSHOT),
        (at(Phase.STALE), 1, 6, Phase.STALE, 5, Action.SNAPSHOT),
        (at(Phase.REWIND), 1, 6, Phase.REWIND, 5, Action.SNAPSHOT),
        (StreamState(), 1, 0, Phase.INITIAL, -1, Action.SNAPSHOT),
        (NUMBERED, None, 6, Phase.LIVE, 6, Action.APPLY),
        (NUMBERED, None, 2, Phase.LIVE, 5, Action.DROP),
    ],
)
def test_a_replayed_message(
    before: StreamState, epoch: int | None, seq: int, phase: Phase, last: int, action: Action
) -> None:
    after, answer = replayed(before, epoch, seq)
    assert (after.phase, after.seq, answer) == (phase, last, action)


@pytest.mark.parametrize("phase", Phase)
def test_a_snapshot_makes_any_phase_live(phase: Phase) -> None:
    same = restored(at(phase), 1, 8)
    assert (same.phase, same.epoch, same.seq, same.former) == (Phase.LIVE, 1, 8, 9)
    other = restored(at(phase), 2, 0)
    assert (other.phase, other.epoch, other.seq, other.former) == (Phase.LIVE, 2, 0, 1)


@pytest.mark.parametrize("phase", Phase)
def test_a_broken_connection_makes_what_was_whole_stale(phase: Phase) -> None:
    whole = phase in (Phase.LIVE, Phase.GAP)
    assert broken(at(phase)).phase is (Phase.STALE if whole else phase)
    assert broken(at(phase)).wants_snapshot


def test_a_replay_that_reaches_the_message_closes_the_gap() -> None:
    state, action = observe(LIVE, 1, 8)
    assert action is Action.REPLAY
    for seq in (6, 7):
        state, action = replayed(state, 1, seq)
        assert action is Action.APPLY
    state, action = observe(state, 1, 8)
    assert (state.phase, state.seq, action) == (Phase.LIVE, 8, Action.APPLY)


def test_a_replay_ahead_of_the_feed_makes_queued_messages_duplicates() -> None:
    state = NUMBERED
    for seq in (6, 7, 8):
        state, _ = replayed(state, None, seq)
    answers = []
    for seq in (6, 7, 8, 9):
        state, action = observe(state, None, seq)
        answers.append(action)
    assert answers == [Action.DROP, Action.DROP, Action.DROP, Action.APPLY]


def test_messages_left_from_before_a_restart_mean_nothing() -> None:
    state, action = observe(LIVE, 2, 3)
    assert action is Action.SNAPSHOT
    state = restored(state, 2, 3)
    state, old = observe(state, 1, 6)
    state, new = observe(state, 2, 4)
    assert (old, new) == (Action.DROP, Action.APPLY)


def test_a_stray_message_of_an_unknown_incarnation_costs_one_snapshot() -> None:
    state, action = observe(LIVE, 77, 0)
    assert action is Action.SNAPSHOT
    state = restored(state, 1, 6)
    state, again = observe(state, 77, 1)
    state, known = observe(state, 1, 7)
    assert (again, known) == (Action.DROP, Action.APPLY)


def test_a_numbered_engine_that_restarts_during_a_replay_is_still_noticed() -> None:
    state = restored(broken(NUMBERED), None, 40)
    assert observe(state, None, 2)[0].phase is Phase.REWIND
