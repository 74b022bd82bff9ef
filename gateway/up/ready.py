"""Waiting for a started stack to answer, with a word about it now and then."""

import http.client
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from gateway.up.child import Child, Process
from gateway.up.preflight import UpError
from gateway.up.supervisor import Say, Supervisor

START_SECONDS = 300.0
WORD_EVERY_S = 5.0
POLL_S = 0.2
FALLS = 2  # one fall at the start may be bad luck with a port; the second is a fault to be shown


def is_ready(process: Process, timeout_s: float = 2.0) -> bool:
    """Whether GET /ready answers 200 now."""
    address = urlsplit(process.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=timeout_s)
    try:
        headers = {"Authorization": f"Bearer {process.token}"} if process.token else {}
        connection.request("GET", "/ready", headers=headers)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def wait_until_ready(
    supervisor: Supervisor, say: Say, stopped: Callable[[], bool], seconds: float = START_SECONDS
) -> bool:
    """Returns True when every child is ready, False when `stopped` says so first. UpError when one cannot start."""
    began = time.monotonic()
    waiting = {watched.child.name: watched for watched in supervisor.watched}
    next_word = began + WORD_EVERY_S
    while not stopped():
        supervisor.tend()
        elapsed = time.monotonic() - began
        for name in [name for name, watched in waiting.items() if is_ready(watched.child.process)]:
            say(f"{name} is ready ({elapsed:.0f} s)")
            del waiting[name]
        if not waiting:
            return True
        for watched in waiting.values():
            if watched.falls >= FALLS or elapsed >= seconds:
                raise UpError(_complaint(watched.child, elapsed))
        if time.monotonic() >= next_word:
            say(f"waiting for {', '.join(waiting)} ({elapsed:.0f} s)")
            next_word += WORD_EVERY_S
        time.sleep(POLL_S)
    return False


def _complaint(child: Child, elapsed: float) -> str:
    what = f"is not ready after {elapsed:.0f} s" if child.running else "keeps stopping during its start"
    return f"{child.name} {what}; see {child.log}, which ends: {child.last_words()}"
