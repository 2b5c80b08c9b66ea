import pytest
import torch
from torch.testing import assert_close

from elmore.model.softmax import AdaptiveSoftmax, Softmax, SoftmaxConfig
from elmore.model.softmax_conversion import copy_adaptive_softmax, copy_full_softmax

CUTOFFS, NUM_WORDS, WIDTH = (6, 20), 60, 16  # tails of width 4 and 1


def full(rank: int) -> Softmax:
    """A full softmax, the rows of whose rare words differ in so many directions."""
    torch.manual_seed(rank)
    module = Softmax(SoftmaxConfig(kind="full"), NUM_WORDS, WIDTH).double()
    with torch.no_grad():
        module.bias.normal_()
        for begin, end in ((6, 20), (20, 60)):
            directions = torch.randn(rank, WIDTH).double()
            module.weight[begin:end] = torch.randn(end - begin, rank).double() @ directions + 0.5
    return module


def adaptive() -> AdaptiveSoftmax:
    torch.manual_seed(9)
    config = SoftmaxConfig(kind="adaptive", cutoffs=CUTOFFS)
    return AdaptiveSoftmax(config, NUM_WORDS, WIDTH).double()


def conditional(log_probs: torch.Tensor, words: slice) -> torch.Tensor:
    """The log-probabilities of some words, given that it is one of them."""
    return log_probs[:, words].log_softmax(dim=1)


def test_what_is_frequent_and_what_differs_in_few_directions_is_copied_exactly():
    source, result = full(rank=1), adaptive()
    copy_full_softmax(result, source)
    states = torch.randn(30, WIDTH).double()
    ours, theirs = result.log_probs(states), source.log_probs(states)
    for words in (slice(6), slice(6, 20), slice(20, 60)):
        assert_close(conditional(ours, words), conditional(theirs, words), rtol=1e-9, atol=1e-9)
    entries = result.head.log_probs(torch.zeros(1, WIDTH).double()).exp()[0, 6:]
    shares = source.log_probs(torch.zeros(1, WIDTH).double()).exp()[0]
    assert_close(entries, torch.stack([shares[6:20].sum(), shares[20:].sum()]))


def test_directions_that_do_not_fit_are_those_in_which_rows_differ_least():
    """Frequent words of a tail count more, as their share of the text."""
    source, result = full(rank=3), adaptive()
    copy_full_softmax(result, source)
    rows = source.weight[20:].detach()
    shares = torch.log1p(1 / torch.arange(21, 61).double())
    shares /= shares.sum()
    centred = (rows - shares @ rows) * shares.sqrt()[:, None]
    tail = result.tails[1]
    kept = (tail.softmax.weight * shares.sqrt()[:, None]).square().sum()
    values = torch.linalg.svdvals(centred)
    assert_close(kept, values[0] ** 2)
    assert values[0] ** 2 < values.square().sum()


def test_a_full_softmax_gets_the_words_of_each_tail_and_the_frequent_ones_exactly():
    source = adaptive()
    with torch.no_grad():
        for weight in source.parameters():
            weight.normal_()
    result = Softmax(SoftmaxConfig(), NUM_WORDS, WIDTH).double()
    copy_adaptive_softmax(result, source)
    states = torch.randn(30, WIDTH).double()
    ours, theirs = result.log_probs(states), source.log_probs(states)
    for words in (slice(6), slice(6, 20), slice(20, 60)):
        assert_close(conditional(ours, words), conditional(theirs, words), rtol=1e-9, atol=1e-9)
    zero = torch.zeros(1, WIDTH).double()  # where nothing depends on the state
    assert_close(result.log_probs(zero), source.log_probs(zero), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rank", [1, 3])
def test_there_and_back_again_little_is_lost(rank):
    source, between = full(rank), adaptive()
    result = Softmax(SoftmaxConfig(kind="full"), NUM_WORDS, WIDTH).double()
    copy_full_softmax(between, source)
    copy_adaptive_softmax(result, between)
    if rank == 1:
        assert_close(result.weight, source.weight, rtol=1e-9, atol=1e-9)
        assert_close(result.bias, source.bias, rtol=1e-9, atol=1e-9)
    else:
        assert (result.weight - source.weight).norm() < 0.7 * source.weight.norm()
