"""The register of requests."""

from gateway.exchange import Exchange
from gateway.live import LiveRequests


def test_a_request_is_live_until_it_leaves_and_recent_after() -> None:
    live = LiveRequests()
    exchange = Exchange("r1", tenant_id="acme")
    live.enter(exchange)
    assert [request.id for request in live.in_flight()] == ["r1"]
    assert (len(live), live.recent()) == (1, [])
    exchange.status = 200
    exchange.close()
    live.leave(exchange)
    assert (len(live), live.in_flight()) == (0, [])
    (recent,) = live.recent()
    assert (recent.id, recent.tenant, recent.status) == ("r1", "acme", 200)


def test_leaving_twice_is_leaving_once() -> None:
    live = LiveRequests()
    exchange = Exchange("r1")
    live.enter(exchange)
    live.leave(exchange)
    live.leave(exchange)
    assert len(live.recent()) == 1


def test_only_the_latest_are_kept_latest_first() -> None:
    live = LiveRequests(recent=3)
    for number in range(10):
        exchange = Exchange(str(number))
        live.enter(exchange)
        live.leave(exchange)
    assert [request.id for request in live.recent()] == ["9", "8", "7"]
