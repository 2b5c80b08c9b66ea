import math

import pytest
import torch
from torch.testing import assert_close

from elmore.tasks.layers.bidaf import BiAttention, SelfAttention, Trilinear

H = torch.tensor([[[1.0, -2.0], [0.5, 3.0], [2.0, 0.0]], [[-1.0, 1.0], [1.0, 0.5], [9.0, 9.0]]])
Q = torch.tensor([[[0.3, 1.0], [-1.0, 2.0]], [[2.0, -0.5], [9.0, 9.0]]])
LENGTHS, ASKED = [3, 1], [2, 1]


def mask(lengths, width):
    return torch.arange(width) < torch.tensor(lengths)[:, None]


def similarity(scores, h, q) -> float:
    """u . h + v . q + (w * h) . q"""
    u, v = scores.left.weight[0].tolist(), scores.right.weight[0].tolist()
    w = scores.both.tolist()
    return sum(u[d] * h[d] + v[d] * q[d] + w[d] * h[d] * q[d] for d in range(len(h)))


def shares(scores: list[float]) -> list[float]:
    total = sum(math.exp(score) for score in scores)
    return [math.exp(score) / total for score in scores]


def mixed(weights: list[float], vectors: list[list[float]]) -> list[float]:
    return [sum(w * v[d] for w, v in zip(weights, vectors, strict=True)) for d in range(2)]


def times(a, b) -> list[float]:
    return [x * y for x, y in zip(a, b, strict=True)]


def test_attention_both_ways_is_that_of_plain_loops():
    attention, lengths = BiAttention(2), [3, 2]
    with torch.no_grad():  # so that the absent token of the second question would suit best
        attention.scores.left.weight.copy_(torch.tensor([[0.3, 0.1]]))
        attention.scores.right.weight.copy_(torch.tensor([[0.2, 0.4]]))
        attention.scores.both.copy_(torch.tensor([0.5, -0.7]))
    result = attention(H, Q, mask(lengths, 3), mask(ASKED, 2))
    assert result.shape == (2, 3, attention.output_dim)
    for pair in range(2):
        h, q = H[pair, : lengths[pair]].tolist(), Q[pair, : ASKED[pair]].tolist()
        scores = [[similarity(attention.scores, x, y) for y in q] for x in h]
        whole = mixed(shares([max(row) for row in scores]), h)
        for i, token in enumerate(h):
            c = mixed(shares(scores[i]), q)
            expected = [*token, *c, *times(token, c), *times(whole, c)]
            assert_close(result[pair, i], torch.tensor(expected))


def test_attention_to_oneself_is_that_of_plain_loops():
    attention = SelfAttention(2)
    result = attention(H, mask(LENGTHS, 3))
    assert result.shape == (2, 3, attention.output_dim)
    h = H[0].tolist()
    for i, token in enumerate(h):
        others = [other for j, other in enumerate(h) if j != i]
        c = mixed(shares([similarity(attention.scores, token, x) for x in others]), others)
        assert_close(result[0, i], torch.tensor([*token, *c, *times(token, c)]))
    # alone, a token has nobody to attend to
    assert_close(result[1, 0], torch.tensor([-1.0, 1.0, 0.0, 0.0, 0.0, 0.0]))


def test_padding_values_change_nothing():
    attention, alone = BiAttention(2), SelfAttention(2)
    other_h, other_q = H.clone(), Q.clone()
    other_h[1, 1:], other_q[1, 1:] = -70.0, 50.0
    masks = mask(LENGTHS, 3), mask(ASKED, 2)
    assert_close(attention(H, Q, *masks)[1, 0], attention(other_h, other_q, *masks)[1, 0])
    assert_close(alone(H, masks[0])[1, 0], alone(other_h, masks[0])[1, 0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_attention_runs_in_other_numbers_and_learns(dtype):
    attention, alone = BiAttention(2).to(dtype), SelfAttention(8).to(dtype)
    masks = mask(LENGTHS, 3), mask([2, 0], 2)  # also where there is no question at all
    result = alone(attention(H.to(dtype), Q.to(dtype), *masks), masks[0])
    assert result.dtype == dtype
    result.square().sum().backward()
    for weight in (*attention.parameters(), *alone.parameters()):
        assert weight.grad is not None
        assert weight.grad.isfinite().all()


def test_scores_are_of_each_with_each():
    scores = Trilinear(2)
    result = scores(H[:1], Q[:1])
    expected = [[similarity(scores, x, y) for y in Q[0].tolist()] for x in H[0].tolist()]
    assert_close(result[0], torch.tensor(expected))
