"""How many threads native code uses, and independent parts of a computation at the same time."""

import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

Result = TypeVar("Result")

_MIN_THREADED = 2**18  # multiplications, some microseconds: fewer do not pay for another thread
_openmp_process: int | None = None  # that started OpenMP's threads: this one, or a parent
_limit = threading.local()  # `threads`: how many a function in `run_together` may use


def num_threads() -> int:
    """Return the number of threads: that of torch if it is loaded, OMP_NUM_THREADS, or all."""
    limit = getattr(_limit, "threads", None)
    if limit is not None:
        return limit
    of_torch = getattr(sys.modules.get("torch"), "get_num_threads", None)
    if of_torch is not None:  # else torch is absent, or another thread is importing it
        return of_torch()
    chosen = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, int(chosen)) if chosen.isdecimal() else _num_cpus()


def _num_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def num_threads_for(multiplications: int) -> int:
    """Return how many threads so many multiplications are worth.

    The threads of OpenMP do not survive a fork, and a child process that uses them hangs. So if
    the parent started them before the fork, the child runs with one thread.
    """
    global _openmp_process
    threads = num_threads() if multiplications >= _MIN_THREADED else 1
    if threads == 1:
        return 1
    _openmp_process = _openmp_process or os.getpid()
    return threads if _openmp_process == os.getpid() else 1


def run_together(functions: Sequence[Callable[[], Result]]) -> list[Result]:
    """Run independent functions at the same time, each with its part of the threads.

    Threads that share the loops of a step wait for each other's last iterations several times in
    each. The functions wait for each other once, at their end.
    """
    threads = num_threads()
    if threads < len(functions):
        return [function() for function in functions]
    results: dict[int, Result] = {}
    errors: list[BaseException] = []

    def run(number: int) -> None:
        before, _limit.threads = getattr(_limit, "threads", None), threads // len(functions)
        try:
            results[number] = functions[number]()
        except BaseException as error:
            errors.append(error)
        finally:
            _limit.threads = before

    started = []
    for number in range(1, len(functions)):
        thread = threading.Thread(target=run, args=(number,), name="elmore-direction")
        try:
            thread.start()
        except RuntimeError:  # the interpreter is exiting, or the system has no more threads
            run(number)
        else:
            started.append(thread)
    run(0)
    for thread in started:
        thread.join()
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(functions))]
