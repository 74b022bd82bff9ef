from gateway.leasedsessions import MAX_PLACES, MAX_SESSIONS, MAX_TENANTS, LeasedSessions, Place

HERE, THERE = Place("w0", "order-42"), Place("w1", "order-42")


def test_a_session_is_where_its_leases_were_taken_until_it_has_ended() -> None:
    sessions = LeasedSessions()
    for place in (HERE, THERE, HERE):
        sessions.leased("acme", "order-42", place)
    assert sessions.ended("acme", "order-42") == [THERE, HERE]
    assert sessions.ended("acme", "order-42") is None


def test_another_tenants_session_of_the_same_name_is_another() -> None:
    sessions = LeasedSessions()
    sessions.leased("acme", "order-42", HERE)
    assert sessions.ended("globex", "order-42") is None
    assert sessions.ended("acme", "order-42") == [HERE]


def test_what_is_remembered_is_bounded_and_the_oldest_goes() -> None:
    sessions = LeasedSessions()
    for number in range(MAX_SESSIONS + 1):
        sessions.leased("acme", f"session {number}", HERE)
    for number in range(MAX_PLACES + 1):
        sessions.leased("acme", "moved about", Place(f"w{number}", ""))
    assert sessions.ended("acme", "session 0") is sessions.ended("acme", "session 1") is None
    assert sessions.ended("acme", "session 2") == [HERE]
    assert sessions.ended("acme", "moved about") == [Place(f"w{number}", "") for number in range(1, MAX_PLACES + 1)]
    for number in range(MAX_TENANTS):
        sessions.leased(f"tenant-{number}", "one", HERE)
    assert sessions.ended("acme", "session 3") is None
