"""Work shared out among processes."""

import multiprocessing
import os

import pytest

from elmore.corpus import workers
from elmore.errors import DataError


def square(number: int) -> int:
    return number * number


def work(task: str) -> str:
    if task == "refuse":
        raise DataError("the third line is odd")
    if task == "full":
        raise OSError(28, "No space left on device", "part")
    if task == "die":
        os._exit(9)
    return task


@pytest.mark.parametrize("num_workers", [1, 3])
def test_every_task_is_done_once(num_workers):
    done = workers.map_unordered(square, iter(range(40)), num_workers)
    assert sorted(done) == [number**2 for number in range(40)]


def test_no_task_at_all_starts_nobody():
    assert list(workers.map_unordered(square, [], 4)) == []


def test_few_tasks_are_held_at_a_time():
    taken = []

    def tasks():
        for number in range(50):
            taken.append(number)
            yield number

    for done, _ in enumerate(workers.map_unordered(square, tasks(), 2), start=1):
        assert len(taken) <= done + 3


@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_error_in_a_worker_is_raised_in_the_caller(num_workers):
    with pytest.raises(DataError, match="the third line is odd"):
        list(workers.map_unordered(work, ["a", "b", "refuse"], num_workers))
    with pytest.raises(OSError, match="No space left") as caught:
        list(workers.map_unordered(work, ["full"], num_workers))
    assert (caught.value.errno, caught.value.filename) == (28, "part")


def test_a_worker_that_dies_is_noticed():
    with pytest.raises(DataError, match="a worker process died"):
        list(workers.map_unordered(work, ["a", "die", *"abcd"], 2))


def test_an_error_in_the_tasks_themselves_ends_the_workers():
    def tasks():
        yield "a"
        raise DataError("the file is damaged")

    with pytest.raises(DataError, match="the file is damaged"):
        list(workers.map_unordered(work, tasks(), 2))
    assert not multiprocessing.active_children()
