"""A pool of worker processes, each with its own pipe.

A worker exits when its pipe closes, so that a killed run leaves no process behind.
"""

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from elmore.errors import DataError

Task = TypeVar("Task")
Result = TypeVar("Result")


def map_unordered(
    work: Callable[[Task], Result], tasks: Iterable[Task], num_workers: int
) -> Iterator[Result]:
    """Yield the results of tasks in any order, holding only a few tasks at a time.

    With one worker the work runs in this process. `work` must be importable by name, as always for
    spawned processes.
    """
    if num_workers == 1:
        yield from map(work, tasks)
        return
    pool = None
    try:
        for task in tasks:
            pool = pool or _WorkerPool(work, num_workers)
            yield from pool.results(until_idle=1)
            pool.submit(task)
        if pool:
            yield from pool.results(until_idle=num_workers)
    finally:
        if pool:
            pool.terminate()


class _WorkerPool:
    """The processes, and the pipes of idle and busy ones."""

    def __init__(self, work: Callable[[Any], Any], num_workers: int) -> None:
        spawn = multiprocessing.get_context("spawn")  # fork is not safe with threads
        self._processes: list[BaseProcess] = []
        self._idle: list[Any] = []  # pipes, of a different class on Windows
        self._busy: list[Any] = []
        for _ in range(num_workers):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_serve, args=(work, theirs), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._idle.append(ours)

    def submit(self, task: object) -> None:
        """Send a task to an idle worker."""
        pipe = self._idle.pop()
        self._busy.append(pipe)
        try:
            pipe.send(task)
        except OSError as error:
            raise _died() from error

    def results(self, *, until_idle: int) -> Iterator[Any]:
        """Yield results until so many workers are idle."""
        while len(self._idle) < until_idle:
            ready: list[Any] = connection.wait(self._busy)
            for pipe in ready:
                try:
                    result = pipe.recv()
                except (EOFError, OSError) as error:
                    raise _died() from error
                if isinstance(result, Exception):
                    raise result
                self._busy.remove(pipe)
                self._idle.append(pipe)
                yield result

    def terminate(self) -> None:
        """Stop all workers."""
        for pipe in (*self._idle, *self._busy):
            pipe.close()
        for process in self._processes:
            process.terminate()
            process.join()
            process.close()


def _died() -> DataError:
    return DataError(
        "a worker process died, perhaps out of memory; continue with --resume and fewer --workers"
    )


def _serve(work: Callable[[Any], Any], pipe: Any) -> None:  # noqa: ANN401 -- see above
    """Run tasks until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles Ctrl-C
    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            result = work(task)
        except Exception as error:  # raised in the main process
            result = error
        try:
            pipe.send(result)
        except OSError:
            return
