"""Rows in 2 and 4 bits: how much is lost, what comes back, and the gradient."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmore.model.rounding import round_rows, round_straight_through
from tests.support.sweeps import pick

MOST_LOST = {
    2: 0.125,
    4: 0.0125,
}  # of a normal distribution, by its best uniform levels: 0.1188, 0.0115


def draw(seed: int, rows: int, columns: int, magnitude: float = 0.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator) * 2.0**magnitude


@pytest.mark.parametrize("bits", [2, 4])
def test_normal_numbers_lose_what_their_best_levels_lose(bits):
    rows = draw(0, 500, 256, -4)
    numbers, scale = round_rows(rows, bits)
    lost = (numbers * scale - rows).square().sum() / rows.square().sum()
    assert lost < MOST_LOST[bits]
    assert set(numbers.unique().tolist()) == set(range(1 - 2**bits, 2**bits, 2))


@given(
    st.sampled_from([2, 4]),
    st.integers(1, 9),
    st.integers(1, 70),
    st.floats(-12, 4),
    st.integers(0, 2**31),
)
@settings(max_examples=pick(20, 100))
def test_rounded_rows_are_rounded_to_themselves(bits, rows, columns, magnitude, seed):
    generator = torch.Generator().manual_seed(seed)
    numbers = 2 * torch.randint(2**bits, (rows, columns), generator=generator) - (2**bits - 1)
    scale = draw(seed, rows, 1, magnitude).abs().half().float().clamp(min=2**-24)
    again, found = round_rows(numbers * scale, bits)
    assert torch.equal(again * found, numbers * scale)


def test_no_row_is_further_off_than_by_the_scale_of_its_deviation():
    rows = draw(3, 50, 40)
    rows[0] = 0.0
    rows[1, 1:] = 0.0
    numbers, scale = round_rows(rows, 2)
    plain = rows.square().mean(dim=1, keepdim=True).sqrt() * 0.9957 / 2
    plain = plain.half().float().clamp(min=2**-24)
    naive = (2 * ((rows / plain - 1) / 2).round() + 1).clamp(-3, 3) * plain
    ours, theirs = ((each - rows).square().sum(dim=1) for each in (numbers * scale, naive))
    assert (ours <= theirs).all()
    assert torch.isfinite(numbers).all()


def test_the_gradient_passes_as_if_nothing_was_rounded():
    rows = draw(1, 5, 8).requires_grad_()
    rounded = round_straight_through(rows, 2)
    numbers, scale = round_rows(rows.detach(), 2)
    assert torch.equal(rounded, numbers * scale)
    upstream = draw(2, 5, 8)
    rounded.backward(upstream)
    assert torch.equal(rows.grad, upstream)
