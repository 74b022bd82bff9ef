"""Which slots are free."""

import pytest

from worker.kv.freeslots import FreeSlots


def test_the_lowest_free_slot_is_taken() -> None:
    slots = FreeSlots(3)
    assert [slots.take() for _ in range(4)] == [0, 1, 2, None]
    slots.give_back(2)
    slots.give_back(0)
    assert (slots.free, slots.take(), slots.take(), slots.free) == (2, 0, 2, 0)


@pytest.mark.parametrize("slot", [0, 3, -1])
def test_giving_back_a_slot_that_is_not_taken_is_a_bug_of_ours(slot: int) -> None:
    with pytest.raises(RuntimeError, match="given back twice"):
        FreeSlots(3).give_back(slot)
