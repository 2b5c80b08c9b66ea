"""The budget of bytes for answers that are not sent yet."""

import contextlib

import pytest
from fastapi import HTTPException
from hypothesis import given
from hypothesis import strategies as st

from elmore.serve.send_budget import SMALL_BYTES, Reservation, SendBudget


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1_200_000)), max_size=40))
def test_reservations_never_exceed_the_budget(steps):
    unsent = SendBudget(1_000_000)
    held = [Reservation(unsent) for _ in range(4)]
    sizes = [0] * 4
    for number, size in steps:
        with contextlib.suppress(HTTPException):
            held[number].resize(size)
            sizes[number] = size
        assert unsent.reserved == sum(sizes) <= unsent.limit
    for reservation in held:
        reservation.release()
    assert unsent.reserved == 0


def test_a_response_above_the_limit_is_413_and_above_the_free_budget_503():
    unsent = SendBudget(1_000_000)
    Reservation(unsent).resize(600_000)
    for size, status in ((900_000, 413), (400_000, 503)):
        with pytest.raises(HTTPException) as refusal:
            Reservation(unsent).resize(size)
        assert refusal.value.status_code == status


def test_large_answers_leave_an_eighth_to_small_ones():
    unsent = SendBudget(16 * SMALL_BYTES)
    Reservation(unsent).resize(14 * SMALL_BYTES)
    with pytest.raises(HTTPException) as refusal:
        Reservation(unsent).resize(SMALL_BYTES + 1)
    assert refusal.value.status_code == 503
    Reservation(unsent).resize(SMALL_BYTES)
    Reservation(unsent).resize(SMALL_BYTES)
    with pytest.raises(HTTPException):
        Reservation(unsent).resize(1)
