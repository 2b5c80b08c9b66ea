import math

import pytest
import torch
from torch.testing import assert_close

from elmore.model import log_sum
from elmore.model.log_sum import log_sum_others


def sum_inputs(size: int = 4, num_words: int = 7, dim: int = 2):
    states = torch.randn(size, dim, dtype=torch.float64, requires_grad=True)
    rows = torch.randn(num_words, dim, dtype=torch.float64, requires_grad=True)
    offsets = torch.randn(num_words, dtype=torch.float64, requires_grad=True)
    return states, rows, offsets, torch.randint(5, (num_words,)), torch.randint(5, (size,))


@pytest.mark.parametrize("chunk", [1, 8, 1000])
def test_gradients_are_those_of_finite_differences(chunk):
    *inputs, words, targets = sum_inputs()
    assert torch.autograd.gradcheck(
        lambda *x: log_sum_others(*x, words, targets, chunk=chunk), inputs
    )


@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_frozen_weights_get_no_gradient_and_others_keep_theirs(frozen):
    *inputs, words, targets = sum_inputs()
    inputs[frozen].requires_grad_(False)
    assert torch.autograd.gradcheck(lambda *x: log_sum_others(*x, words, targets, chunk=8), inputs)
    log_sum_others(*inputs, words, targets, chunk=8).sum().backward()
    assert inputs[frozen].grad is None


@pytest.mark.parametrize("chunk", [1, 8, 1000])
def test_it_is_the_log_of_the_sum_over_the_words_that_are_not_the_target(chunk):
    states, rows, offsets, words, targets = sum_inputs()
    expected = [
        math.log(
            sum(
                math.exp((state @ row + offset).item())
                for row, offset, word in zip(rows, offsets, words, strict=True)
                if word != target
            )
        )
        for state, target in zip(states, targets, strict=True)
    ]
    result = log_sum_others(states, rows, offsets, words, targets, chunk=chunk)
    assert_close(result, torch.tensor(expected, dtype=torch.float64))


def test_where_every_word_is_the_target_the_sum_is_empty():
    *inputs, words, _ = sum_inputs()
    words, targets = torch.full_like(words, 3), torch.tensor([3, 3, 4, 3])
    total = log_sum_others(*inputs, words, targets, chunk=8)
    assert (total == -math.inf).tolist() == [True, True, False, True]
    total[2].backward()
    assert all(torch.isfinite(each.grad).all() for each in inputs)


def test_words_that_are_added_for_evenness_are_never_counted():
    states, rows = torch.randn(7, 4), torch.randn(10, 4)
    offsets, words, targets = torch.randn(10), torch.arange(10), torch.arange(7)
    padded = log_sum.pad_words(rows, offsets, words)
    assert [len(each) for each in padded] == [64, 64, 64]
    plain = log_sum_others(states, rows, offsets, words, targets, chunk=1000)
    even = log_sum_others(states, *padded, targets, chunk=1000)
    assert_close(even, plain)
    assert log_sum.pad_words(*padded)[0] is padded[0]
