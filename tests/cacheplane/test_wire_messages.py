"""What goes around batches: messages, replays, snapshots."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cacheplane import wire
from cacheplane.wire import (
    Message,
    Snapshot,
    SnapshotBlock,
    WireError,
    decode_message,
    decode_replay,
    decode_replay_request,
    decode_snapshot,
    encode_message,
    encode_replay,
    encode_replay_request,
    encode_snapshot,
)
from tests.cacheplane.recordings import pack

parents = st.none() | st.binary(min_size=1, max_size=64)
snapshots = st.builds(
    Snapshot,
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**63 - 1),
    st.integers(0, 1 << 20),
    st.lists(st.builds(SnapshotBlock, st.binary(min_size=1, max_size=64), parents, st.integers(0, 3)), max_size=5),
)


@given(snapshots)
def test_a_snapshot_reads_back(snapshot: Snapshot) -> None:
    read = decode_snapshot(bytearray(encode_snapshot(snapshot)))
    assert (read.epoch, read.seq, read.block_size) == (snapshot.epoch, snapshot.seq, snapshot.block_size)
    assert list(read.blocks) == list(read.blocks) == snapshot.blocks


@pytest.mark.parametrize(
    "change",
    [{"seq": -2}, {"epoch": "x"}, {"pieces": None}, {"pieces": [[b"h", None, 0]]}, {"pieces": ["h"]}, {"blocks": []}],
    ids=str,
)
def test_a_malformed_snapshot_is_a_wire_error(change: dict[str, Any]) -> None:
    good = {"epoch": 1, "seq": -1, "block_size": 16, "pieces": [pack([[b"h", None, 0]])]}
    assert list(decode_snapshot(pack(good)).blocks) == [SnapshotBlock(b"h", None, 0)]
    if "blocks" in change:  # what a worker said that was not in pieces
        del good["pieces"]
    with pytest.raises(WireError):
        decode_snapshot(pack(good | change))


BLOCK = [b"h", None, 0]


@pytest.mark.parametrize(
    "piece",
    [
        b"",
        b"\xc1",
        pack([[b"h", None, 4]]),
        pack([[b"h", None, -1]]),
        pack([[b"", None, 0]]),
        pack([[b"h"]]),
        pack([BLOCK]) + b"\0",
        pack([BLOCK] * (wire.SNAPSHOT_PIECE + 1)),
        b"\x91" * 100_000,
    ],
    ids=lambda piece: piece[:8].hex(),
)
def test_a_malformed_piece_is_a_wire_error_when_it_is_its_turn(piece: bytes) -> None:
    good = {"epoch": 1, "seq": -1, "block_size": 16, "pieces": [pack([BLOCK] * wire.SNAPSHOT_PIECE), piece]}
    blocks = iter(decode_snapshot(pack(good)).blocks)
    assert [next(blocks).hash for _ in range(wire.SNAPSHOT_PIECE)] == [b"h"] * wire.SNAPSHOT_PIECE
    with pytest.raises(WireError):
        next(blocks)


def test_a_snapshot_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = encode_snapshot(Snapshot(1, -1, 16, []))
    crowd = {"epoch": 1, "seq": -1, "block_size": 16, "pieces": [b"\x90"] * (wire.MAX_SNAPSHOT_PIECES + 1)}
    with pytest.raises(WireError, match="malformed"):
        decode_snapshot(pack(crowd))
    monkeypatch.setattr(wire.snapshots, "MAX_SNAPSHOT_BYTES", len(payload) - 1)
    with pytest.raises(WireError, match="larger"):
        decode_snapshot(payload)


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=20))
def test_a_message_reads_back(seq: int, payload: bytes) -> None:
    assert decode_message(encode_message(seq, payload)) == Message(b"kv", seq, payload)


def test_the_sequence_is_8_bytes_big_endian() -> None:
    assert encode_message(258, b"p") == [b"kv", b"\0\0\0\0\0\0\1\2", b"p"]


@pytest.mark.parametrize("frames", [[], [b"kv"], [b"kv", b"\0" * 7, b""], [b"kv", b"\0" * 8, b"", b""]])
def test_a_message_of_another_shape_is_a_wire_error(frames: list[bytes]) -> None:
    with pytest.raises(WireError):
        decode_message(frames)


def test_a_replay_is_asked_for_and_answered() -> None:
    assert encode_replay_request(7) == [b"", b"\0" * 7 + b"\7"]
    assert decode_replay_request([b"id", *encode_replay_request(7)]) == (b"id", 7)
    message = Message(b"kv", 7, b"payload")
    assert decode_replay(encode_replay(message)) == message
    assert encode_replay(None) == [b"", b"", b"\xff" * 8, b""]
    assert decode_replay(encode_replay(None)) is None


@pytest.mark.parametrize("frames", [[], [b"kv", b"\0" * 8, b""], [b"x", b"kv", b"\0" * 8, b""], [b"", b"kv", b"", b""]])
def test_a_replay_answer_of_another_shape_is_a_wire_error(frames: list[bytes]) -> None:
    with pytest.raises(WireError):
        decode_replay(frames)


@pytest.mark.parametrize("frames", [[], [b"id", b"\0" * 8], [b"id", b"x", b"\0" * 8], [b"id", b"", b"\0" * 9]])
def test_a_replay_request_of_another_shape_is_a_wire_error(frames: list[bytes]) -> None:
    with pytest.raises(WireError):
        decode_replay_request(frames)
