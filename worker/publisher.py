"""Publishes block events: PUB for those who listen, ROUTER for those who missed something.

source   the wire of cacheplane/wire; replay as vLLM's: an asker sends the first number it wants
"""

import contextlib
import os
import threading
import time
from collections import deque
from queue import Empty, SimpleQueue

import zmq

from cacheplane.wire import (
    TOPIC,
    Batch,
    Event,
    Message,
    WireError,
    decode_replay_request,
    encode_batch,
    encode_message,
    encode_replay,
)

_BUFFERED = 10_000  # messages that can be replayed
_MAX_QUEUED = 100_000  # beyond it messages are dropped; the gap in the numbers makes consumers heal by snapshot
_POLL_SECONDS = 0.02


class EventPublisher:
    """A thread with two sockets on `host`, on ports that the system chooses.

    `publish` only numbers a message and queues it, so that the engine never waits for a socket or a slow consumer.

    raises   OSError, in words, where the host is none of this machine
    """

    def __init__(self, host: str, epoch: int) -> None:
        self._epoch = epoch
        self._context = zmq.Context()
        self._pub = self._context.socket(zmq.PUB)
        self._router = self._context.socket(zmq.ROUTER)
        for socket in (self._pub, self._router):
            socket.setsockopt(zmq.LINGER, 0)
            # Beyond it a socket drops. A whole replay must fit with its end marker: who never sees that waits for it.
            socket.setsockopt(zmq.SNDHWM, 2 * _BUFFERED)
        try:
            self.pub = f"tcp://{host}:{self._pub.bind_to_random_port(f'tcp://{host}')}"
            self.replay = f"tcp://{host}:{self._router.bind_to_random_port(f'tcp://{host}')}"
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            why = os.strerror(error.errno or 0)
            raise OSError(
                f"cannot listen at --host {host} ({why}); give a name or IPv4 address of this machine"
            ) from None
        self._next = 0
        self._queue: SimpleQueue[tuple[int, Batch]] = SimpleQueue()
        self._sent: deque[Message] = deque(maxlen=_BUFFERED)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._thread.join()
        self._context.destroy(linger=0)

    def publish(self, events: list[Event]) -> int:
        """Queues one message; returns its sequence number. Called by the engine's thread only."""
        seq, self._next = self._next, self._next + 1
        if self._queue.qsize() < _MAX_QUEUED:
            self._queue.put((seq, Batch(time.time(), events, None, self._epoch)))
        return seq

    def _run(self) -> None:
        while not self._stopping:
            with contextlib.suppress(Empty):
                self._send(*self._queue.get(timeout=_POLL_SECONDS))
            while self._router.poll(0):
                self._answer(self._router.recv_multipart())

    def _send(self, seq: int, batch: Batch) -> None:
        message = Message(TOPIC, seq, encode_batch(batch))
        self._sent.append(message)
        self._pub.send_multipart(encode_message(seq, message.payload), zmq.NOBLOCK)

    def _answer(self, frames: list[bytes]) -> None:
        try:
            asker, first = decode_replay_request(frames)
        except WireError:
            return
        # An asker that does not read is cut off by the socket's own limit; what it misses it asks for again.
        with contextlib.suppress(zmq.Again, zmq.ZMQError):
            for message in [message for message in self._sent if message.seq >= first]:
                self._router.send_multipart([asker, *encode_replay(message)], zmq.NOBLOCK)
            self._router.send_multipart([asker, *encode_replay(None)], zmq.NOBLOCK)
