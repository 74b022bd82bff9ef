"""Ports for those who begin to listen later, and again after a failure."""

import random
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

from gateway.up.preflight import UpError

LOOPBACK: Final = "127.0.0.1"
LOWEST: Final = 16_384
FEWEST: Final = 4_096  # to choose from, also where the system leaves fewer
HANDED_OUT: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Different ports of the loopback address that nobody listens at now.

    Nor are they such as the system gives to outgoing connections and to who binds to port 0: one of those may be taken
    by anybody before its owner listens there, or while its owner is started again.
    """
    found: list[int] = []
    choice = range(LOWEST, max(handed_out_from(), LOWEST + FEWEST))
    for port in random.sample(choice, len(choice)):
        if len(found) == count:
            break
        with suppress(OSError), socket.socket() as probe:
            probe.bind((LOOPBACK, port))
            found.append(port)
    if len(found) < count:
        raise UpError(f"Only {len(found)} of {count} ports at {LOOPBACK} are free; stop what listens at so many.")
    return found


def handed_out_from() -> int:
    """The first of the ports that the system hands out."""
    try:
        return int(HANDED_OUT.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768  # Linux's default; elsewhere they begin higher
