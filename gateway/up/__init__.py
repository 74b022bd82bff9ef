"""`saltway up`: everything on one machine, from nothing to ready, and back to nothing on Ctrl-C.

owns            the home folder, checks before the start, demo tenants, child processes and their supervision
does not own    what the children do: it meets them as commands, exit codes and GET /ready
front door      up, UpError
"""

from gateway.up.preflight import UpError
from gateway.up.stack import up

__all__ = ["UpError", "up"]
