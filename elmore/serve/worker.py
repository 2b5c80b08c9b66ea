"""The one thread that runs the model, and its state as seen from outside.

A thread that hangs in the device cannot be stopped, so it is a daemon: the process exits anyway.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any


class WorkerDied(Exception):  # noqa: N818 -- it says what happened
    """The worker has ended; the message is the type of the exception that ended it."""


class WorkerHung(Exception):  # noqa: N818 -- it says what happens
    """The worker has been in one call for too long; the message says for how long."""


class WorkerThread:
    """Runs calls one after another, without blocking the event loop."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future] | None] = SimpleQueue()
        self._since: deque[float] = deque()  # when each unfinished call was submitted
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    @property
    def busy_seconds(self) -> float:
        """How long the oldest unfinished call has taken so far; 0 if there is none."""
        try:
            return self._clock() - self._since[0]
        except IndexError:  # the thread has just finished it
            return 0.0

    @property
    def busy(self) -> bool:
        """Whether there is an unfinished call."""
        return bool(self._since)

    async def run(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401 -- whatever it returns
        """Return the result of the call, or raise its exception.

        Raises:
            WorkerDied: The call raised an exception that ends a thread, such as SystemExit.
        """
        future: Future = Future()
        self._since.append(self._clock())
        self._calls.put((call, future))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """End the thread after its last call; wait for that only if it is idle."""
        self._calls.put(None)
        if not self.busy:
            self._thread.join()

    def _work(self) -> None:
        while self._do_next():
            pass

    def _do_next(self) -> bool:
        """Run the next call; return False at the end. The call is not referenced afterwards."""
        item = self._calls.get()
        if item is None:
            return False
        call, future = item
        is_pending = future.set_running_or_notify_cancel()
        try:
            result, error = call() if is_pending else None, None
        except Exception as raised:
            result, error = None, raised
        except BaseException as raised:
            result, error = None, WorkerDied(type(raised).__name__)
            error.__cause__ = raised
        self._since.popleft()  # before the result is visible
        if is_pending and error is not None:
            future.set_exception(error)
        elif is_pending:
            future.set_result(result)
        return True
