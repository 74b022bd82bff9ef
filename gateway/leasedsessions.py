"""Where the sessions of tenants have leases, so that the end of one can be told to the workers that hold them.

In memory of one process, and bounded: where a session is not known, every worker is told of its end.
"""

from collections import OrderedDict
from dataclasses import dataclass

from gateway.bounded import keep_newest

MAX_TENANTS = 256  # whoever took no lease for longest goes
MAX_SESSIONS = 1000  # of a tenant; the one that took none for longest goes
MAX_PLACES = 32  # of a session; the oldest goes


@dataclass(frozen=True, slots=True)
class Place:
    """One lease of a session: the worker that holds it, and its session there."""

    worker_id: str
    session: str


class LeasedSessions:
    """A session means nothing to another tenant than the one that it was named by."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, OrderedDict[str, OrderedDict[Place, None]]] = OrderedDict()

    def leased(self, tenant_id: str, session: str, place: Place) -> None:
        """The session has a lease there."""
        sessions = self._tenants.setdefault(tenant_id, OrderedDict())
        places = sessions.setdefault(session, OrderedDict())
        places[place] = None
        keep_newest(self._tenants, tenant_id, MAX_TENANTS)
        keep_newest(sessions, session, MAX_SESSIONS)
        keep_newest(places, place, MAX_PLACES)

    def ended(self, tenant_id: str, session: str) -> list[Place] | None:
        """Where it had leases, and forgets it; None when that is not known."""
        places = self._tenants.get(tenant_id, OrderedDict()).pop(session, None)
        return None if places is None else list(places)
