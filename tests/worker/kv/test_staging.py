"""Who owns which buffer."""

import pytest

from worker.kv.staging import Staging


def test_buffers_are_lent_until_none_is_left_and_used_again() -> None:
    staging = Staging(2, 8)
    one, two = staging.take(), staging.take()
    assert one is not None
    assert two is not None
    assert one is not two
    assert (one.size, staging.lent, staging.take()) == (8, 2, None)
    staging.give_back(one)
    assert staging.take() is one


def test_a_buffer_that_is_not_lent_cannot_be_given_back() -> None:
    staging = Staging(1, 8)
    buffer = staging.take()
    assert buffer is not None
    staging.give_back(buffer)
    with pytest.raises(RuntimeError, match="twice"):
        staging.give_back(buffer)
