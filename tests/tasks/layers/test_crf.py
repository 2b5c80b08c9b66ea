"""The field against its definition: every path is written out, scored and summed."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from elmore.tasks.layers.crf import CRF, bio_transitions

BIO = ["O", "B-a", "I-a", "B-b", "I-b"]


def random_crf(num_labels: int, allowed: Tensor | None = None) -> CRF:
    crf = CRF(num_labels, allowed).double()
    torch.nn.init.normal_(crf.transitions)
    return crf


def paths(crf: CRF, scores: Tensor) -> dict[tuple[int, ...], float]:
    """The score of every allowed path through one sentence (T, K), from the definition."""
    start, end = crf.num_labels, crf.num_labels + 1
    allowed = torch.ones_like(crf.transitions) if crf.allowed is None else crf.allowed
    allowed, moved, seen = allowed.tolist(), crf.transitions.tolist(), scores.tolist()
    result = {}
    for path in itertools.product(range(crf.num_labels), repeat=len(scores)):
        moves = list(itertools.pairwise((start, *path, end)))
        if all(allowed[a][b] for a, b in moves):
            here = sum(seen[t][label] for t, label in enumerate(path))
            result[path] = here + sum(moved[a][b] for a, b in moves)
    return result


def log_sum(values) -> float:
    return math.log(sum(map(math.exp, values)))


def values(every) -> Tensor:
    return torch.tensor(list(every.values()), dtype=torch.float64)


def nll_of(crf: CRF, scores: Tensor, every) -> Tensor:
    """What the field makes of each path through one and the same sentence (1, T, K)."""
    labels = torch.tensor(list(every))
    return crf(scores.expand(len(every), -1, -1), labels, full(scores.shape[1], len(every)))


def full(length: int, num_sentences: int = 1) -> Tensor:
    return torch.ones(num_sentences, length, dtype=torch.bool)


@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 1000))
def test_sum_and_best_path_are_those_of_all_paths(num_labels, length, seed):
    torch.manual_seed(seed)
    crf, scores = random_crf(num_labels), torch.randn(1, length, num_labels).double()
    every = paths(crf, scores[0])
    assert crf.log_partition(scores, full(length)).item() == pytest.approx(log_sum(every.values()))
    assert crf.decode(scores, full(length)) == [list(max(every, key=every.__getitem__))]
    assert_close(nll_of(crf, scores, every), log_sum(every.values()) - values(every))


@given(st.integers(1, 4), st.integers(0, 1000))
def test_under_constraints_too(length, seed):
    torch.manual_seed(seed)
    crf = random_crf(5, bio_transitions(BIO))
    scores = 3 * torch.randn(1, length, 5).double()
    every = paths(crf, scores[0])
    assert len(every) < 5**length
    assert crf.decode(scores, full(length)) == [list(max(every, key=every.__getitem__))]
    assert_close(nll_of(crf, scores, every), log_sum(every.values()) - values(every))


@pytest.mark.parametrize("allowed", [None, bio_transitions(BIO)])
def test_a_sentence_is_the_same_in_a_padded_batch(allowed):
    crf, lengths = random_crf(5, allowed), [4, 1, 0, 6]
    scores = torch.randn(4, 6, 5).double()
    labels = torch.tensor([[1, 2, 0, 3, -1, -1], [1] + [-1] * 5, [-1] * 6, [0, 0, 3, 4, 4, 1]])
    mask = torch.arange(6) < torch.tensor(lengths)[:, None]
    nll, best = crf(scores, labels, mask), crf.decode(scores, mask)
    for b, length in enumerate(lengths):
        cut = (slice(b, b + 1), slice(length))
        assert_close(nll[b : b + 1], crf(scores[cut], labels[cut], mask[cut]))
        assert best[b : b + 1] == crf.decode(scores[cut], mask[cut])
        assert len(best[b]) == length
    assert nll[2] == 0


def test_an_empty_batch_of_columns_can_be_learned_from():
    scores = torch.zeros(2, 0, 3, requires_grad=True)
    nll = CRF(3)(scores, torch.zeros(2, 0, dtype=torch.long), full(0, 2))
    assert_close(nll, torch.zeros(2))
    nll.sum().backward()


def test_untrained_every_token_stands_alone():
    scores = torch.randn(2, 5, 4)
    labels = torch.randint(4, (2, 5))
    crf = CRF(4)
    assert crf.decode(scores, full(5, 2)) == scores.argmax(dim=2).tolist()
    alone = torch.nn.functional.cross_entropy(
        scores.flatten(0, 1), labels.flatten(), reduction="none"
    )
    assert_close(crf(scores, labels, full(5, 2)), alone.view(2, 5).sum(dim=1))


def test_no_score_is_large_enough_to_break_a_constraint():
    scores = torch.zeros(1, 4, 5)
    scores[:, :, 2] = 1e6  # I-a everywhere
    best = CRF(5, bio_transitions(BIO)).decode(scores, full(4))
    assert best == [[1, 2, 2, 2]]


@pytest.mark.parametrize("labels", [[2, 0], [0, 2], [1, 4], [3, 2]])
def test_a_forbidden_gold_path_is_refused(labels):
    crf = CRF(5, bio_transitions(BIO))
    with pytest.raises(ValueError, match="forbidden"):
        crf(torch.zeros(1, 2, 5), torch.tensor([labels]), full(2))


def test_labels_of_padding_are_not_checked():
    crf = CRF(5, bio_transitions(BIO))
    mask = torch.tensor([[True, False]])
    assert crf(torch.zeros(1, 2, 5), torch.tensor([[0, 2]]), mask).isfinite().all()


@pytest.mark.parametrize("allowed", [None, bio_transitions(BIO)])
def test_gradients_are_those_of_differences(allowed):
    crf = random_crf(5, allowed)
    scores = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[1, 2, 0, 3], [1, 2, 0, 0], [0, 0, 0, 0]])
    mask = torch.arange(4) < torch.tensor([[4], [2], [0]])

    def nll(scores: Tensor, transitions: Tensor) -> Tensor:
        return torch.func.functional_call(crf, {"transitions": transitions}, (scores, labels, mask))

    assert torch.autograd.gradcheck(nll, (scores, crf.transitions))


def test_low_precision_scores_are_summed_in_full():
    crf, mask = CRF(3), full(200)
    scores = torch.randn(1, 200, 3)
    labels = torch.randint(3, (1, 200))
    rounded = scores.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        nll = crf(rounded, labels, mask)
    assert nll.dtype == torch.float32
    assert_close(nll, crf(rounded.float(), labels, mask))


def test_bio_says_what_may_follow_what():
    allowed = bio_transitions(["O", "B-a", "I-a", "I-b"])
    assert allowed.int().tolist() == [
        # O  B-a I-a I-b start end
        [1, 1, 0, 0, 0, 1],  # O
        [1, 1, 1, 0, 0, 1],  # B-a
        [1, 1, 1, 0, 0, 1],  # I-a
        [1, 1, 0, 1, 0, 1],  # I-b
        [1, 1, 0, 0, 0, 1],  # start
        [0, 0, 0, 0, 0, 0],  # end
    ]


def test_labels_that_are_not_bio_are_refused():
    with pytest.raises(ValueError, match="found 'S-a'"):
        bio_transitions(["O", "S-a"])


def test_constraints_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r"make 5 states; allowed has shape \(4, 4\)"):
        CRF(3, torch.ones(4, 4, dtype=torch.bool))


@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 9))
def test_marginals_are_the_sums_of_the_paths_through_a_label(num_labels, length, seed):
    torch.manual_seed(seed)
    crf = random_crf(num_labels)
    scores = torch.randn(1, length, num_labels)
    every = paths(crf, scores[0])
    total = log_sum(every.values())
    result = crf.marginals(scores, torch.ones(1, length, dtype=torch.bool))
    for t, label in itertools.product(range(length), range(num_labels)):
        through = [score for path, score in every.items() if path[t] == label]
        assert result[0, t, label].item() == pytest.approx(
            math.exp(log_sum(through) - total), abs=1e-5
        )
