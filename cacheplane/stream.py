"""The recovery machine of one worker's event stream: small, pure, tested on every edge.

It holds no clock, socket or log. The caller tells it what arrived and does what it answers, so that the
index ends equal to the worker's cache after any loss, duplication, reordering or restart.

    Initial   nothing known yet                                   wants a snapshot
    Live      everything up to `seq` is in the index
    Gap       messages after `seq` were missed                    a replay is under way
    Stale     the replay did not close the gap, or the            wants a snapshot
              connection broke, or a payload could not be read
    Rewind    the worker restarted: its old blocks are gone       wants a snapshot, drops the old blocks

Two facts make this enough. A message belongs to an incarnation (`epoch`) and has a number in it, and a snapshot
says which number it includes. And a snapshot that was asked for after a message arrived is never older
than that message, so whatever arrives while one is wanted may be dropped.
"""

import enum
from dataclasses import dataclass, replace

from cacheplane.wire import NO_SEQ


class Phase(enum.Enum):
    INITIAL = "initial"
    LIVE = "live"
    GAP = "gap"
    STALE = "stale"
    REWIND = "rewind"


class Action(enum.Enum):
    """What the caller does with the message it has just shown."""

    APPLY = "apply"  # into the index, now
    DROP = "drop"  # already included, or of an incarnation left behind
    REPLAY = "replay"  # ask for everything from state.seq + 1, show that, then show this message again
    SNAPSHOT = "snapshot"  # drop it and fetch a snapshot; on Rewind drop the worker's blocks first


@dataclass(frozen=True, slots=True)
class StreamState:
    """Where one stream stands.

    epoch    incarnation that the index follows, None for engines without
    seq      last message that the index includes, -1 for none
    heard    last message on the live feed; told apart from `seq` because a replay runs ahead of the feed
    former   incarnation left behind last; its messages may still be queued and mean nothing any more
    """

    phase: Phase = Phase.INITIAL
    epoch: int | None = None
    seq: int = NO_SEQ
    heard: int = NO_SEQ
    former: int | None = None

    @property
    def wants_snapshot(self) -> bool:
        return self.phase in (Phase.INITIAL, Phase.STALE, Phase.REWIND)


def observe(state: StreamState, epoch: int | None, seq: int) -> tuple[StreamState, Action]:
    """A message on the live feed."""
    if state.phase is Phase.INITIAL:
        return state, Action.SNAPSHOT
    if epoch is not None and epoch == state.former:
        return state, Action.DROP
    if epoch != state.epoch or (epoch is None and _ran_backwards(state, seq)):
        return _rewind(state, epoch, seq), Action.SNAPSHOT
    state = replace(state, heard=seq)
    if state.wants_snapshot:
        return state, Action.SNAPSHOT
    if seq <= state.seq:
        return replace(state, phase=Phase.LIVE), Action.DROP
    if seq == state.seq + 1:
        return replace(state, phase=Phase.LIVE, seq=seq), Action.APPLY
    if state.phase is Phase.GAP:  # shown again after the replay: it did not help
        return replace(state, phase=Phase.STALE), Action.SNAPSHOT
    return replace(state, phase=Phase.GAP), Action.REPLAY


def replayed(state: StreamState, epoch: int | None, seq: int) -> tuple[StreamState, Action]:
    """A message of a replay; a hole in it cannot be filled by another replay."""
    if state.wants_snapshot:
        return state, Action.SNAPSHOT
    if epoch != state.epoch:
        return _rewind(state, epoch, seq), Action.SNAPSHOT
    if seq <= state.seq:
        return state, Action.DROP
    if seq > state.seq + 1:
        return replace(state, phase=Phase.STALE), Action.SNAPSHOT
    return replace(state, seq=seq), Action.APPLY


def restored(state: StreamState, epoch: int | None, seq: int) -> StreamState:
    """The index now equals a snapshot of this incarnation that includes everything up to `seq`."""
    former = state.former if epoch == state.epoch else state.epoch
    return StreamState(Phase.LIVE, epoch, seq, state.heard, former)


def broken(state: StreamState) -> StreamState:
    """The connection was lost, or a payload could not be read: what was missed is unknown."""
    return state if state.wants_snapshot else replace(state, phase=Phase.STALE)


def _rewind(state: StreamState, epoch: int | None, seq: int) -> StreamState:
    """Follow another incarnation, of which one message was seen and nothing is included yet."""
    return StreamState(Phase.REWIND, epoch, heard=seq, former=state.epoch)


def _ran_backwards(state: StreamState, seq: int) -> bool:
    """Without epochs only the numbers tell of a restart: a live feed never runs backwards or starts twice."""
    return seq < state.heard or (seq == 0 and state.heard == 0)
