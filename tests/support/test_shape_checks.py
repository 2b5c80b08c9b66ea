"""The sample of calls whose shapes are checked: a wrong shape there is an error."""

import jaxtyping
import pytest
import torch

from elmore.model import log_sum
from elmore.tasks.squad.model import _Texts
from tests.support.shape_checks import ALWAYS, THEN_EVERY

MATRIX, CUBE = torch.zeros(3, 4), torch.zeros(1, 2, 3)


def is_refused() -> bool:
    """Call a function that multiplies matrices with three dimensions, which torch would accept."""
    try:
        log_sum.multiply(CUBE, MATRIX)
    except jaxtyping.TypeCheckError:
        return True
    return False


def test_the_first_calls_and_then_every_tenth_refuse_a_wrong_shape():
    refused = [is_refused() for _ in range(ALWAYS + 20)]
    assert all(refused[:ALWAYS])
    assert all(refused[ALWAYS + THEN_EVERY - 1 :: THEN_EVERY])
    assert sum(refused) == ALWAYS + 20 // THEN_EVERY


def test_the_tenth_call_after_correct_ones_refuses_a_wrong_shape():
    for _ in range(ALWAYS + THEN_EVERY - 1):
        log_sum.multiply(torch.zeros(2, 3), MATRIX)
    assert is_refused()


def test_a_dataclass_with_a_field_of_a_wrong_shape_is_refused():
    numbers = torch.zeros(2, dtype=torch.long)
    _Texts(MATRIX, MATRIX, numbers, numbers)
    with pytest.raises(jaxtyping.TypeCheckError):
        _Texts(MATRIX, CUBE, numbers, numbers)
