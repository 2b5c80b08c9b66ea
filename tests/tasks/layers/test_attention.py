"""Shares of tokens that are there."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from elmore.tasks.layers.attention import masked_softmax


@given(st.integers(0, 5), st.integers(0, 1000))
def test_shares_are_those_of_what_is_there_alone(length, seed):
    torch.manual_seed(seed)
    scores = 10 * torch.randn(2, 5)
    mask = torch.arange(5) < torch.tensor([[length], [5]])
    found = masked_softmax(scores, mask)
    assert_close(found[0, :length], scores[0, :length].softmax(dim=-1))
    assert not found[0, length:].any()
    assert_close(found[1], scores[1].softmax(dim=-1))


def test_where_nothing_is_there_nothing_is_shared_nor_learned():
    scores = torch.randn(3, 4, requires_grad=True)
    found = masked_softmax(scores, torch.zeros(3, 4, dtype=torch.bool))
    assert not found.any()
    found.sum().backward()
    assert not scores.grad.any()
