"""Work shared out among processes, each at the end of a pipe of its own.

A worker whose pipe closes ends by itself, so that a killed run leaves no process behind.
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


def share_out(
    work: Callable[[Task], Result], tasks: Iterable[Task], num_workers: int
) -> Iterator[Result]:
    """Give the result of each task as it comes, in any order; few tasks are held at a time.

    With one worker the work is done here. `work` must be importable by name, as for all spawned
    processes.
    """
    if num_workers == 1:
        yield from map(work, tasks)
        return
    crew = None
    try:
        for task in tasks:
            crew = crew or _Crew(work, num_workers)
            yield from crew.results(until_idle=1)
            crew.give(task)
        if crew:
            yield from crew.results(until_idle=num_workers)
    finally:
        if crew:
            crew.dismiss()


class _Crew:
    """The processes, and who is idle."""

    def __init__(self, work: Callable[[Any], Any], num_workers: int) -> None:
        spawn = multiprocessing.get_context("spawn")  # forks and threads do not go together
        self._processes: list[BaseProcess] = []
        self._idle: list[Any] = []  # pipes, which on Windows are of another class
        self._busy: list[Any] = []
        for _ in range(num_workers):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_serve, args=(work, theirs), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._idle.append(ours)

    def give(self, task: object) -> None:
        """Hand a task to somebody idle."""
        pipe = self._idle.pop()
        self._busy.append(pipe)
        try:
            pipe.send(task)
        except OSError as error:
            raise _died() from error

    def results(self, *, until_idle: int) -> Iterator[Any]:
        """Give what is done, until so many are idle."""
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

    def dismiss(self) -> None:
        """Send everybody home."""
        for pipe in (*self._idle, *self._busy):
            pipe.close()
        for process in self._processes:
            process.terminate()
            process.join()
            process.close()


def _died() -> DataError:
    return DataError(
        "a worker process died, perhaps for want of memory; go on with --resume and fewer --workers"
    )


def _serve(work: Callable[[Any], Any], pipe: Any) -> None:  # noqa: ANN401 -- see above
    """Do the tasks that come, until nobody sends any."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who waits for us
    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            result = work(task)
        except Exception as error:  # whatever it is, it is for the one who asked
            result = error
        try:
            pipe.send(result)
        except OSError:
            return
