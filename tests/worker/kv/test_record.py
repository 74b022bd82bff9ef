"""Parents before children, and what a record shows of itself."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.worker.kv.blocks import GLOBEX, chain
from worker.kv.record import DiskRecord, parents_first

TRUNK = chain(4)
FOREST = [*TRUNK, *chain(3, after=TRUNK[1], first=100), *chain(2, namespace=GLOBEX)]


@given(st.permutations(FOREST))
def test_parents_come_before_children_in_any_order_of_files(records: list[DiskRecord]) -> None:
    known: set[bytes | None] = {None}
    for record in parents_first(records):
        assert record.parent in known
        known.add(record.digest)
    assert len(known) == len(FOREST) + 1


@given(st.sets(st.sampled_from(range(len(FOREST)))))
def test_what_has_no_way_to_a_root_is_left_out(missing: set[int]) -> None:
    present = [record for index, record in enumerate(FOREST) if index not in missing]
    by_digest = {record.digest: record for record in present}

    def rooted(record: DiskRecord) -> bool:
        return record.parent is None or (record.parent in by_digest and rooted(by_digest[record.parent]))

    assert {record.digest for record in parents_first(present)} == {
        record.digest for record in present if rooted(record)
    }


def test_a_cycle_is_not_followed() -> None:
    one, two, lineage = b"1" * 16, b"2" * 16, bytes(32)
    assert parents_first([DiskRecord(one, two, b"", lineage), DiskRecord(two, one, b"", lineage)]) == []


def test_a_block_does_not_hang_from_another_path_of_the_same_digest() -> None:
    """What a crafted collision of chain hashes would leave on disk: a child beside the file of a stranger's parent."""
    mine, stranger = chain(3), chain(1, first=100)[0]
    twin = replace(stranger, digest=mine[0].digest)
    assert parents_first([twin, *mine[1:]]) == [twin]
    assert parents_first(mine) == mine
    assert parents_first([replace(mine[0], lineage=stranger.lineage)]) == []


def test_a_record_shows_neither_tokens_nor_namespace() -> None:
    record = TRUNK[0]
    assert repr(record) == f"DiskRecord({record.digest.hex()})"
