import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from torch.testing import assert_close

from elmore.model import sampling

EXACT = {"rtol": 1e-12, "atol": 1e-12}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(st.integers(1, 3000))
def test_log_uniform_probabilities_sum_to_one(num_words):
    probabilities = sampling.log_uniform(torch.arange(num_words), num_words)
    assert_close(probabilities.sum().item(), 1.0, **EXACT)
    assert (probabilities.diff() < 0).all()


def test_log_uniform_is_its_formula():
    expected = [(math.log(k + 2) - math.log(k + 1)) / math.log(6) for k in range(5)]
    result = sampling.log_uniform(torch.arange(5), 5)
    assert_close(result, torch.tensor(expected, dtype=torch.float64), **EXACT)


@pytest.mark.parametrize("num_words", [1, 2, 20, 300])
def test_draws_follow_the_log_uniform_law(num_words):
    num_draws = 200_000
    words, said = sampling.draw(num_draws, num_words, generator())
    expected = num_draws * sampling.log_uniform(torch.arange(num_words), num_words)
    observed = torch.bincount(words, minlength=num_words)
    chi_square = ((observed - expected) ** 2 / expected).sum().item()
    freedom = num_words - 1
    assert len(observed) == num_words
    assert said == num_draws
    assert chi_square <= freedom + 5 * math.sqrt(2 * freedom)


def test_every_draw_is_a_word_of_a_large_vocabulary():
    words, _ = sampling.draw(100_000, 793_471, generator())
    assert words.min() == 0
    assert 700_000 < words.max() < 793_471


@given(st.integers(1, 40), st.integers(0, 20), st.integers(0, 1000))
def test_the_unique_sampler_draws_until_enough_words_are_distinct(num_samples, more, seed):
    num_words = num_samples + more
    words, num_draws = sampling.draw_unique(num_samples, num_words, generator(seed))
    assert len(set(words.tolist())) == len(words) == num_samples
    assert 0 <= words.min() <= words.max() < num_words
    stream = sampling.draw(4 * num_samples, num_words, generator(seed)).words.tolist()
    if num_draws <= len(stream):
        assert list(dict.fromkeys(stream[:num_draws])) == words.tolist()
        assert len(set(stream[: num_draws - 1])) == num_samples - 1


def test_expected_counts_of_distinct_words_are_how_often_they_come():
    num_words, num_draws, repeats = 6, 10, 20_000
    stream = sampling.draw(repeats * num_draws, num_words, generator()).words
    came = functional.one_hot(stream.view(repeats, num_draws), num_words).any(dim=1)
    expected = sampling.expected_unique(torch.arange(num_words), num_words, num_draws)
    noise = (expected * (1 - expected) / repeats).sqrt()
    assert ((came.double().mean(dim=0) - expected).abs() < 4 * noise).all()


def test_expected_counts_stay_exact_for_the_rarest_words():
    rare = torch.tensor([999_999])
    result = sampling.expected_unique(rare, 10**6, 3)
    assert_close(result, 3 * sampling.log_uniform(rare, 10**6), rtol=1e-6, atol=0.0)
