"""The threads of native code, and functions that run at the same time."""

import os
import subprocess
import sys
import threading
from functools import partial
from types import ModuleType

import pytest

from elmore.model import native_threads
from elmore.model.native_threads import run_together


@pytest.fixture
def threads(monkeypatch):
    """Set the number of threads."""

    def set_number(number: int) -> None:
        monkeypatch.setattr("torch.get_num_threads", lambda: number)

    return set_number


def test_torch_that_is_still_being_imported_sets_no_number_of_threads(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert native_threads.num_threads() == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_process_that_forks_after_it_used_threads_does_not_hang():
    code = """
import os, signal, sys
import numpy as np
from elmore.model import native, native_threads

matrix, rows = native.pack(np.ones((256, 256), np.float32)), np.ones((64, 256), np.float32)
expected = native.multiply(matrix, rows)
assert native_threads.num_threads_for(rows.size * 256) == 2
if os.fork() == 0:
    signal.alarm(100)
    os._exit(not np.array_equal(native.multiply(matrix, rows), expected))
sys.exit(os.wait()[1])
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_functions_run_at_the_same_time_each_with_its_part_of_the_threads(threads):
    threads(5)
    barrier = threading.Barrier(2, timeout=60)  # which breaks if one runs after the other

    def run(number: int) -> tuple[int, int]:
        barrier.wait()
        return number, native_threads.num_threads()

    assert run_together([partial(run, number) for number in (7, 8)]) == [(7, 2), (8, 2)]
    assert native_threads.num_threads() == 5


def test_functions_inside_functions_share_their_part(threads):
    threads(4)
    inner = [native_threads.num_threads] * 2
    assert run_together([lambda: run_together(inner), native_threads.num_threads]) == [[1, 1], 2]


def test_one_thread_runs_one_function_after_another(threads):
    threads(1)
    order = []
    run_together([partial(order.append, (number, threading.get_ident())) for number in (1, 2)])
    assert order == [(1, threading.get_ident()), (2, threading.get_ident())]


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_is_raised_when_both_have_ended(threads, failing):
    threads(2)
    ended = threading.Event()

    def fail() -> None:
        raise MemoryError("no memory")

    functions = [ended.set, ended.set]
    functions[failing] = fail
    with pytest.raises(MemoryError, match="no memory"):
        run_together(functions)
    assert ended.is_set()
    assert native_threads.num_threads() == 2


def test_where_no_thread_can_start_the_functions_run_all_the_same(threads, monkeypatch):
    threads(2)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert run_together([lambda: 1, lambda: 2]) == [1, 2]


def test_a_process_embeds_while_it_exits():
    code = """
import atexit, elmore
elmo = elmore.load()
atexit.register(lambda: print(elmo.embed(["a b"])[0].vectors.shape))
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    run = [sys.executable, "-c", code]
    printed = subprocess.run(run, env=environment, check=True, capture_output=True, text=True)
    assert (printed.stdout, printed.stderr) == ("(2, 512)\n", "")
