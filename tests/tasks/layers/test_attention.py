"""LayerWeights of tokens that are there."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from elmore.tasks.layers.attention import attend, masked_softmax


@given(st.integers(0, 5), st.integers(0, 1000))
def test_masked_softmax_is_the_softmax_of_the_unmasked_scores(length, seed):
    torch.manual_seed(seed)
    scores = 10 * torch.randn(2, 5)
    mask = torch.arange(5) < torch.tensor([[length], [5]])
    result = masked_softmax(scores, mask)
    assert_close(result[0, :length], scores[0, :length].softmax(dim=-1))
    assert not result[0, length:].any()
    assert_close(result[1], scores[1].softmax(dim=-1))


def test_a_fully_masked_row_has_zero_weights_and_gradients():
    scores = torch.randn(3, 4, requires_grad=True)
    result = masked_softmax(scores, torch.zeros(3, 4, dtype=torch.bool))
    assert not result.any()
    result.sum().backward()
    assert not scores.grad.any()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=3), st.integers(0, 1000))
def test_a_query_gets_the_average_of_the_tokens_by_their_dot_products(lengths, seed):
    torch.manual_seed(seed)
    queries, tokens = torch.randn(len(lengths), 2, 3), torch.randn(len(lengths), max(lengths), 3)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    result = attend(queries, tokens, mask)
    for row, length in enumerate(lengths):
        for index in range(2):
            query = queries[row, index].tolist()
            there = tokens[row, :length].tolist()
            powers = [math.exp(sum(a * b for a, b in zip(query, t, strict=True))) for t in there]
            expected = [
                sum(power * t[i] for power, t in zip(powers, there, strict=True))
                / (sum(powers) or 1)
                for i in range(3)
            ]
            assert_close(result[row, index].tolist(), expected, rtol=1e-4, atol=1e-5)
