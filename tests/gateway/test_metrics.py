"""Metrics, without a gateway around them."""

from gateway.exchange import Exchange
from gateway.metrics import MAX_TENANTS, OTHER, Labels, Metrics


def test_tenants_beyond_the_bound_share_one_label() -> None:
    labels = Labels(limit=2)
    assert [labels.of(tenant) for tenant in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]


def test_the_number_of_series_does_not_grow_with_the_tenants() -> None:
    metrics = Metrics(lambda: 0, list)

    def series() -> int:
        return sum(len(family.samples) for family in metrics.registry.collect())

    for number in range(MAX_TENANTS + 1):
        metrics.settled(Exchange(str(number), tenant_id=f"t{number}", model="tiny", status=200))
    full = series()
    for number in range(1000):
        metrics.settled(Exchange(str(number), tenant_id=f"late{number}", model="tiny", status=200))
    assert series() == full


def test_a_request_that_was_never_placed_counts_no_placement() -> None:
    metrics = Metrics(lambda: 3, list)
    metrics.settled(Exchange("r", tenant_id="acme", status=400))
    text = metrics.text().decode()
    assert 'saltway_requests_total{model="unknown",status="400",tenant="acme"} 1.0' in text
    assert "saltway_placements_total{" not in text
    assert "saltway_in_flight_requests 3.0" in text
    assert "saltway_retries_total 0.0" in text
