"""A child process: `python fake_child.py PORT MODE`. See `MODES` for how it behaves on GET /ready."""

import signal
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

MODES = {
    "good": "answers 200",
    "slow": "answers 503 for good",
    "deaf": "answers 200 and ignores SIGTERM",
    "broken": "says why on standard error and exits with code 3",
}


class Ready(BaseHTTPRequestHandler):
    """200 or 503 on any path."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
        """A real child logs to its file; this one keeps it short."""


def main(port: int, mode: str) -> None:
    if mode == "broken":
        sys.stderr.write("no such tensor\n")
        sys.exit(3)
    if mode == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Ready.status = 503 if mode == "slow" else 200
    HTTPServer(("127.0.0.1", port), Ready).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
