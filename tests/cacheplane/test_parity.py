"""Predicted against delivered reuse."""

from cacheplane.parity import Parity, Record


def test_less_than_predicted_is_a_mismatch_and_more_is_not() -> None:
    parity = Parity()
    for predicted, delivered in ((64, 64), (64, 32), (0, 48)):
        parity.note("w0", predicted, delivered)
    assert parity.of("w0") == Record(requests=3, predicted=128, delivered=144, mismatches=1)


def test_workers_have_records_of_their_own() -> None:
    parity = Parity()
    parity.note("w0", 16, 16)
    assert parity.of("w1") == Record()
    parity.forget("w0")
    parity.forget("w0")
    assert parity.of("w0") == Record()
