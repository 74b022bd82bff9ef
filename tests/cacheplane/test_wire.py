"""The event wire: recorded engine frames, every encoding that is accepted, and bounds."""

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cacheplane import wire
from cacheplane.wire import (
    AllBlocksCleared,
    Batch,
    BlockRemoved,
    BlockStored,
    Event,
    Tier,
    WireError,
    decode_batch,
    decode_snapshot,
    encode_batch,
)
from tests.cacheplane.recordings import RECORDED, key, pack, recorded

hashes = st.lists(st.binary(min_size=1, max_size=64), max_size=5)
parents = st.none() | st.binary(min_size=1, max_size=64)
tiers = st.sampled_from(Tier)
groups = st.none() | st.integers(0, 3)
events = st.one_of(
    st.builds(BlockStored, hashes, parents, st.integers(0, 1 << 20), tiers, groups),
    st.builds(BlockRemoved, hashes, tiers, st.none() | st.text(max_size=20), groups),
    st.just(AllBlocksCleared()),
)
batches = st.builds(
    Batch,
    st.floats(allow_nan=False),
    st.lists(events, max_size=5),
    st.none() | st.integers(0, 9),
    st.none() | st.integers(0, 2**63 - 1),
)


def only_event(event: Any) -> Event:
    (decoded,) = decode_batch(pack([1.5, [event], None])).events
    return decoded


def test_a_recorded_prompt_is_one_chain_from_its_root() -> None:
    message = recorded("stored")
    assert (message.topic, message.seq) == (b"kv@w0@smollm2", 0)
    batch = decode_batch(message.payload)
    assert (batch.dp_rank, batch.epoch, batch.skipped) == (0, None, 0)
    names = (11745398329136607454, 15090595034017647695, 2713814466240255474, 7898186800963518836)
    assert batch.events == [BlockStored([key(name) for name in names], None, 32, Tier.DEVICE, 0)]


def test_recorded_decode_blocks_name_their_parents() -> None:
    batch = decode_batch(recorded("children").payload)
    assert batch.events == [
        BlockStored([key(356675840772540870)], key(18244980957052697546), 32, Tier.DEVICE, 0),
        BlockStored([key(14656746727145568069)], key(16274661518172575084), 32, Tier.DEVICE, 0),
    ]


def test_a_recorded_batch_evicts_before_it_stores() -> None:
    kinds = [type(event) for event in decode_batch(recorded("evicted").payload).events]
    assert kinds == [BlockRemoved] * 37 + [BlockStored]


def test_a_recorded_reset_clears_before_it_stores() -> None:
    kinds = [type(event) for event in decode_batch(recorded("cleared").payload).events]
    assert kinds == [AllBlocksCleared, BlockStored]


def test_a_recorded_salt_and_recorded_tokens_are_not_kept() -> None:
    payload = recorded("salted").payload
    assert b"tenantA" in payload
    assert "tenantA" not in repr(decode_batch(payload))


@pytest.mark.parametrize("kind", ["sliding_window", "chunked_local_attention", "mamba"])
def test_blocks_that_are_no_whole_prefix_are_left_out(kind: str) -> None:
    event = {"type": "BlockStored", "block_hashes": [5], "block_size": 1, "group_idx": 1, "kv_cache_spec_kind": kind}
    assert decode_batch(pack([1.5, [event], None])) == Batch(1.5, [], skipped=1)


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_batch_survives_our_own_encoding(name: str) -> None:
    batch = decode_batch(recorded(name).payload)
    assert decode_batch(encode_batch(batch)) == batch


@given(batches)
def test_what_we_encode_we_decode(batch: Batch) -> None:
    assert decode_batch(encode_batch(batch)) == batch


def test_our_own_batch_is_written_as_promised() -> None:
    batch = Batch(
        2.0,
        [BlockStored([b"h" * 16], b"p" * 16, 16), BlockRemoved([b"h" * 16], Tier.HOST, "evicted"), AllBlocksCleared()],
        None,
        7,
    )
    stored: dict[str, Any] = {"type": "BlockStored", "block_hashes": [b"h" * 16], "parent_block_hash": b"p" * 16}
    stored |= {"token_ids": [], "block_size": 16, "medium": "DEVICE"}
    removed = {"type": "BlockRemoved", "block_hashes": [b"h" * 16], "medium": "HOST", "reason": "evicted"}
    assert msgspec.msgpack.decode(encode_batch(batch)) == [
        2.0,
        [stored, removed, {"type": "AllBlocksCleared"}],
        None,
        7,
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            ["BlockStored", [5, 6], 4, [1, 2], 1],
            {
                "type": "BlockStored",
                "block_hashes": [5, 6],
                "parent_block_hash": 4,
                "token_ids": [1, 2],
                "block_size": 1,
            },
        ),
        (
            ["BlockStored", [5], None, [[1, 2]], 1, None, "CPU_TIER1", "lora", [["salt"]], 0, "full_attention"],
            {
                "type": "BlockStored",
                "block_hashes": [5],
                "block_size": 1,
                "medium": "CPU",
                "extra_keys": [["salt"]],
                "group_idx": 0,
            },
        ),
        (["BlockRemoved", [5], None, 2], {"type": "BlockRemoved", "block_hashes": [5], "group_idx": 2}),
        (["BlockRemoved", [5], "DISK"], {"type": "BlockRemoved", "block_hashes": [5], "medium": "NVME"}),
        (["AllBlocksCleared"], {"type": "AllBlocksCleared"}),
    ],
)
def test_positional_events_mean_what_map_events_mean(old: list[Any], new: dict[str, Any]) -> None:
    assert only_event(old) == only_event(new)


def test_a_batch_may_be_an_array_or_a_map_and_leave_out_the_rank() -> None:
    event = ["BlockRemoved", [5]]
    plain = decode_batch(pack([3, [event]]))
    assert plain == Batch(3.0, [BlockRemoved([key(5)])])
    assert decode_batch(pack({"ts": 3, "events": [event]})) == plain
    assert decode_batch(pack({"ts": 3, "events": [event], "data_parallel_rank": 2})).dp_rank == 2
    assert decode_batch(pack([3, [event], 2, 9, "more"])) == Batch(3.0, plain.events, 2, 9)


@given(st.integers(-(2**63), -1))
def test_a_signed_hash_is_its_unsigned_twin(value: int) -> None:
    assert only_event(["BlockRemoved", [value]]) == only_event(["BlockRemoved", [value + 2**64]])


@given(st.binary(min_size=1, max_size=64))
def test_a_bytes_hash_stays_as_it_is(name: bytes) -> None:
    assert only_event(["BlockRemoved", [name]]) == BlockRemoved([name])


@pytest.mark.parametrize(
    ("media", "tier"),
    [
        (["GPU", "DEVICE", "gpu", None], Tier.DEVICE),
        (["CPU", "CPU_PINNED", "CPU_TIER1", "HOST"], Tier.HOST),
        (["CPU_TIER2", "DISK", "NVME", "STORAGE"], Tier.DISK),
        (["EXTERNAL", "NETWORK", "REMOTE", "SHARED"], Tier.REMOTE),
    ],
)
def test_media_go_by_many_names(media: list[str | None], tier: Tier) -> None:
    for medium in media:
        assert only_event({"type": "BlockRemoved", "block_hashes": [1], "medium": medium}) == BlockRemoved(
            [key(1)], tier
        )


@pytest.mark.parametrize(
    "unknown",
    [["LeaseGranted", 1], {"type": "LeaseGranted"}, {"type": "BlockRemoved", "block_hashes": [1], "medium": "TAPE"}],
)
def test_an_unknown_kind_or_medium_is_counted_and_the_rest_is_kept(unknown: Any) -> None:
    batch = decode_batch(pack([1, [unknown, ["AllBlocksCleared"]]]))
    assert (batch.events, batch.skipped) == ([AllBlocksCleared()], 1)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        pack(None),
        pack([]),
        pack([1.0]),
        pack(["now", []]),
        pack([1.0, {}]),
        pack([1.0, [5]]),
        pack([1.0, [[]]]),
        pack([1.0, [{}]]),
        pack([1.0, [["BlockStored", [1], None, []]]]),
        pack([1.0, [["BlockStored", ["1"], None, [], 16]]]),
        pack([1.0, [["BlockStored", [b""], None, [], 16]]]),
        pack([1.0, [["BlockStored", [b"x" * 65], None, [], 16]]]),
        pack([1.0, [["BlockStored", [1], None, [], -16]]]),
        pack([1.0, [{"type": "BlockStored", "block_hashes": [1]}]]),
        pack([1.0, [{"type": "BlockRemoved", "block_hashes": 1}]]),
        pack([1.0, [["BlockRemoved", [1], "M" * 65]]]),
        pack([1.0, [], None, "epoch"]),
        pack([1.0, []]) + b"\x00",
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\x92\x01\xdd\xff\xff\xff\xff",
        b"\x92\x01\x91" + b"\x91" * 100_000 + b"\x90",
    ],
    ids=lambda payload: payload[:8].hex(),
)
def test_a_malformed_batch_is_a_wire_error(payload: bytes) -> None:
    with pytest.raises(WireError):
        decode_batch(payload)


def test_an_error_does_not_repeat_what_was_sent() -> None:
    with pytest.raises(WireError) as caught:
        decode_batch(pack([1.0, [{"type": "BlockRemoved", "block_hashes": ["a prompt"]}]]))
    assert "a prompt" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_sizes_are_bounded() -> None:
    crowd = ["BlockRemoved", [1] * wire.MAX_HASHES]
    assert decode_batch(pack([1, [crowd]])).skipped == 0
    crowd[1].append(1)  # type: ignore[attr-defined]
    for payload in (
        pack([1, [crowd]]),
        pack([1, [["AllBlocksCleared"]] * (wire.MAX_EVENTS + 1)]),
        pack([1, [], None, None, bytes(wire.MAX_PAYLOAD_BYTES)]),
    ):
        with pytest.raises(WireError):
            decode_batch(payload)


@given(st.binary(max_size=300))
@example(recorded("children").payload[:-1])
def test_any_bytes_decode_or_are_a_wire_error(payload: bytes) -> None:
    for decode in (decode_batch, read_snapshot):
        try:
            decode(payload)
        except WireError:
            continue


def read_snapshot(payload: bytes) -> None:
    assert all(block.hash for block in decode_snapshot(payload).blocks)


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8)
)
trees = st.recursive(
    scalars | st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "type", "block_hashes"]),
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8) | st.just("type"), inner, max_size=6)
    ),
    max_leaves=12,
)


@given(trees, st.lists(trees, max_size=4))
def test_any_msgpack_value_decodes_or_is_a_wire_error(value: Any, inner: list[Any]) -> None:
    for payload in (
        pack(value),
        pack([0.0, inner]),
        pack({"epoch": 1, "seq": 0, "block_size": 16, "pieces": list(map(pack, inner))}),
    ):
        for decode in (decode_batch, read_snapshot):
            try:
                decode(payload)
            except WireError:
                continue


@given(st.sampled_from(RECORDED), st.data())
def test_a_damaged_recording_decodes_or_is_a_wire_error(name: str, data: st.DataObject) -> None:
    payload = bytearray(recorded(name).payload)
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_batch(bytes(payload))
    except WireError:
        return
