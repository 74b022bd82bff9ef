"""What other threads want done on the engine's thread."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import Any, Generic, TypeVar

from worker.wire import WorkerError

T = TypeVar("T")


class Inbox:
    """Actions in the order in which they came, and who waits for each.

    Any thread may `put`; one thread works, and closes when it ends. Every future comes to an end: with what its action
    returned or raised, with a WorkerError 503 when nothing is done any more, or as its owner has cancelled it.
    """

    def __init__(self) -> None:
        self._calls: deque[_Call[Any]] = deque()
        self._lock = Lock()
        self._closed = False

    def put(self, action: Callable[[], T]) -> Future[T]:
        call = _Call(action)
        with self._lock:
            closed = self._closed
            if not closed:
                self._calls.append(call)
        if closed:
            call.refuse()
        return call.future

    def work(self) -> None:
        """Does what has come. What an action raises that is no WorkerError, this raises too."""
        while self._calls:
            self._calls.popleft().run()

    def close(self) -> None:
        """Nothing is done any more, of what has come and of what will."""
        with self._lock:
            self._closed = True
        while self._calls:
            self._calls.popleft().refuse()


class _Call(Generic[T]):
    """One action."""

    def __init__(self, action: Callable[[], T]) -> None:
        self._action = action
        self.future: Future[T] = Future()

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return  # a server that stops cancels its handlers: none of them must take the engine along
        try:
            self.future.set_result(self._action())
        except WorkerError as error:
            self.future.set_exception(error)
        except BaseException as error:
            self.future.set_exception(error)  # who waits must not wait for an engine that stops
            raise

    def refuse(self) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(WorkerError(503, "stopped", "the engine has stopped"))
