"""Metrics, without a gateway around them."""

import re

from cacheplane.attribution import Misses, Reason
from gateway.exchange import Exchange
from gateway.metrics import MAX_TEMPLATES, MAX_TENANTS, OTHER, Labels, Metrics
from tests.documented import PAGE, documented, offered


def test_every_metric_is_documented_and_no_other() -> None:
    assert offered(Metrics(lambda: 0, list, dict, lambda: 0.0).registry) == documented("Gateway")


def test_tenants_beyond_the_bound_share_one_label() -> None:
    labels = Labels(tenants=2)
    assert [labels.tenant(tenant) for tenant in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]


def test_templates_beyond_the_bound_share_one_label_within_their_tenant() -> None:
    labels = Labels(tenants=2, templates=2)
    assert [labels.template(*pair) for pair in (("a", "t"), ("a", "u"), ("b", "t"), ("a", "t"), ("c", "t"))] == [
        *(("a", "t"), ("a", "u"), ("b", OTHER), ("a", "t"), (OTHER, OTHER)),
    ]


def test_the_number_of_series_does_not_grow_with_the_tenants() -> None:
    metrics = Metrics(lambda: 0, list, dict, lambda: 0.0)

    def series() -> int:
        return sum(len(family.samples) for family in metrics.registry.collect())

    for number in range(MAX_TENANTS + 1):
        metrics.settled(Exchange(str(number), tenant_id=f"t{number}", model="tiny", status=200))
    full = series()
    for number in range(1000):
        metrics.settled(Exchange(str(number), tenant_id=f"late{number}", model="tiny", status=200))
    assert series() == full


def test_a_request_that_was_never_placed_counts_no_placement() -> None:
    metrics = Metrics(lambda: 3, list, dict, lambda: 0.25)
    metrics.settled(Exchange("r", tenant_id="acme", status=400))
    text = metrics.text().decode()
    assert 'saltway_requests_total{model="unknown",status="400",tenant="acme"} 1.0' in text
    assert "saltway_placements_total{" not in text
    assert "saltway_in_flight_requests 3.0" in text
    assert "saltway_blind_decision_share 0.25" in text
    assert "saltway_retries_total 0.0" in text


def test_every_page_calls_metrics_by_the_names_that_a_scrape_has() -> None:
    known = documented("Gateway") | documented("Worker")
    for page in (*PAGE.parent.glob("*.md"), *PAGE.parents[1].glob("*.md")):
        assert set(re.findall(r"\bsaltway_\w+", page.read_text("utf-8"))) <= known, page


def missed(number: int, tokens: int, tenant: str = "acme") -> Exchange:
    exchange = Exchange(str(number), tenant_id=tenant, model="tiny", status=200, template=f"{number:08x}")
    exchange.prompt_tokens, exchange.cached_tokens, exchange.available_tokens = tokens + 32, 32, 48
    exchange.misses = Misses({Reason.EVICTED: 16, Reason.FIRST_SEEN: tokens - 16})
    return exchange


def test_missed_tokens_are_counted_by_template_and_reason_beside_the_three_rates() -> None:
    metrics = Metrics(lambda: 0, list, lambda: {"tiny": 12}, lambda: 0.0)
    for _ in range(2):
        metrics.settled(missed(7, 100))
    text = metrics.text().decode()
    at = 'template="00000007",tenant="acme"'
    assert f'saltway_missed_tokens_total{{reason="evicted",{at}}} 32.0' in text
    assert f'saltway_missed_tokens_total{{reason="first_seen",{at}}} 168.0' in text
    for stage, tokens in (("prompt", 264.0), ("available", 96.0), ("routed", 0.0), ("delivered", 64.0)):
        assert f'saltway_reuse_tokens_total{{stage="{stage}",{at}}} {tokens}' in text
    assert 'saltway_tenant_isolated_tokens_total{model="tiny"} 12.0' in text


def test_the_number_of_series_does_not_grow_with_the_templates() -> None:
    metrics = Metrics(lambda: 0, list, dict, lambda: 0.0)

    def series() -> int:
        return sum(len(family.samples) for family in metrics.registry.collect())

    for number in range(MAX_TEMPLATES + 1):
        metrics.settled(missed(number, 100))
    full = series()
    for number in range(1000):
        metrics.settled(missed(MAX_TEMPLATES + 1 + number, 100))
    assert series() == full
