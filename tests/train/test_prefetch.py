"""Batches made ahead: the same batches in the same order, and no thread left behind."""

import threading
import time
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmore.train.prefetch import DEPTH, prefetch, to_device


def makers() -> set[threading.Thread]:
    """The threads that make batches now: others' too, for a training somebody left unfinished."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("elmore-batches")}


@given(st.integers(0, 30), st.integers(0, 10))
def test_batches_come_in_order_and_each_once(count, first):
    others = makers()
    numbers = range(first, first + count)
    assert list(prefetch(lambda number: number * number, numbers)) == [n * n for n in numbers]
    assert makers() <= others


def test_several_threads_give_the_same_batches_in_the_same_order():
    def make(number: int) -> int:
        time.sleep(0.002 * (number % 3))  # later ones are often ready first
        return number * number

    others = makers()
    assert list(prefetch(make, range(40), num_threads=4)) == [number**2 for number in range(40)]
    assert makers() <= others


def test_batches_are_made_before_they_are_asked_for_but_not_all_of_them():
    made = []
    batches = prefetch(lambda number: made.append(number) or number, range(100))
    assert next(batches) == 0
    deadline = time.monotonic() + 60
    while len(made) < DEPTH + 1 and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.05)
    assert made == list(range(DEPTH + 1))  # one in use, DEPTH that wait
    batches.close()


def test_an_error_of_the_maker_arrives_where_its_batch_was_awaited():
    def make(number: int) -> int:
        if number == 3:
            raise ValueError("batch 3 is broken")
        return number

    others = makers()
    batches = prefetch(make, range(10))
    assert [next(batches) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="batch 3 is broken"):
        next(batches)
    assert makers() <= others


def test_the_thread_ends_when_nobody_wants_more():
    others = makers()
    batches = prefetch(lambda number: number, range(10**9))
    next(batches)
    assert len(makers() - others) == 1
    batches.close()
    assert makers() <= others


def test_nothing_is_made_before_the_first_is_asked_for():
    made, others = [], makers()
    batches = prefetch(made.append, range(5))
    time.sleep(0.02)
    assert made == []
    assert makers() <= others
    batches.close()


class Pair(NamedTuple):
    one: torch.Tensor
    other: tuple[int, str]


class Named(NamedTuple):
    name: str
    tensor: torch.Tensor


class Tokens(list):
    """A list that counts how often it is walked."""

    walks = 0

    def __iter__(self):
        self.walks += 1
        return super().__iter__()


def test_every_tensor_of_a_batch_is_moved_and_the_rest_is_kept():
    batch = Pair(torch.ones(2), (3, "x"))
    result = to_device({"pair": batch, "list": [torch.zeros(1), None]}, torch.device("meta"))
    assert type(result["pair"]) is Pair
    assert result["pair"].one.is_meta
    assert result["pair"].other == (3, "x")
    assert result["list"][0].is_meta
    assert result["list"][1] is None


def test_a_name_beside_a_tensor_does_not_hide_it_and_tokens_are_not_walked():
    tokens = Tokens(["the", "bank"])
    batch = {"named": Named("a", torch.ones(1)), "pair": ("a", torch.ones(1)), "tokens": [tokens]}
    result = to_device(batch, torch.device("meta"))
    assert result["named"].tensor.is_meta
    assert result["pair"][1].is_meta
    assert result["tokens"][0] is tokens
    assert tokens.walks == 0
