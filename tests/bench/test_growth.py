"""Growth is counted over the very blocks that came."""

from bench.growth import bytes_each, growth


def test_the_kv_itself_is_not_part_of_what_a_block_costs() -> None:
    assert bytes_each(1_000, 51_000, blocks=100, kv_bytes=128) == 372


def test_there_is_a_row_for_each_size() -> None:
    rows = growth((8, 32), path=4)
    assert [row["blocks"] for row in rows] == [8, 32]
    assert all(row["match_ms"] > 0 and row["store_us"] > 0 for row in rows)


def test_leases_stay_on_every_block_however_many() -> None:
    assert len(growth((8, 32), path=4, leased=True)) == 2
