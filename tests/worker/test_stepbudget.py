"""Steps are short while several tags are about, and for a while after."""

from worker.stepbudget import StepBudget


def test_steps_are_halves_while_several_tags_have_work_and_for_a_while_after() -> None:
    budget = StepBudget(256, least=16)
    assert [budget.next(tags) for tags in (0, 1, 2, 3, 1, 0)] == [256, 256, 128, 128, 128, 128]
    assert [budget.next(1) for _ in range(130)] == [128] * 125 + [256] * 5
    assert budget.next(2) == 128


def test_a_short_step_has_room_for_every_slot() -> None:
    budget = StepBudget(20, least=16)
    assert [budget.next(2), budget.whole] == [16, 20]
