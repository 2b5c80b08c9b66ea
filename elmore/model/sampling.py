"""Negatives for the sampled softmax: words drawn log-uniformly by rank.

    P(k) = (ln(k + 2) - ln(k + 1)) / ln(V + 1)                        k = 0 .. V - 1

Word counts sorted in descending order nearly follow this law (Zipf), so the negatives are about as
frequent as words are. All is computed in float64: in float32 the ranks of a large vocabulary are
not distinct.

Shapes: n negatives, V words.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Negatives(NamedTuple):
    """Drawn words, and the number of draws it took."""

    words: Int[Tensor, " n"]
    num_draws: int


def log_uniform(words: Int[Tensor, " n"], num_words: int) -> Float[Tensor, " n"]:
    """Return the probability of each word in one draw."""
    return (words.double() + 1).reciprocal().log1p() / math.log(num_words + 1)


def draw(num_samples: int, num_words: int, generator: torch.Generator) -> Negatives:
    """Draw with replacement, on the device of the generator."""
    uniform = torch.rand(
        num_samples, generator=generator, device=generator.device, dtype=torch.float64
    )
    # the inverse of the cumulative distribution ln(k + 2) / ln(V + 1)
    ranks = (uniform * math.log(num_words + 1)).exp().long() - 1
    return Negatives(ranks.clamp(0, num_words - 1), num_samples)


def draw_unique(num_samples: int, num_words: int, generator: torch.Generator) -> Negatives:
    """Draw until `num_samples` words are distinct, as TensorFlow does; repeats are dropped."""
    draws = draw(4 * num_samples, num_words, generator).words
    while (first := _is_first(draws)).sum() < num_samples:
        draws = torch.cat([draws, draw(len(draws), num_words, generator).words])
    num_draws = int((first.cumsum(dim=0) < num_samples).sum()) + 1
    return Negatives(draws[:num_draws][first[:num_draws]], num_draws)


def _is_first(draws: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
    """Return for each draw whether its word was not drawn before."""
    words, order = draws.sort(stable=True)
    first = torch.ones_like(draws, dtype=torch.bool)
    first[order[1:]] = words[1:] != words[:-1]
    return first


def expected_counts(
    words: Int[Tensor, " n"], num_words: int, num_draws: int
) -> Float[Tensor, " n"]:
    """Return the expected count of each word in draws with replacement."""
    return num_draws * log_uniform(words, num_words)


def expected_unique(
    words: Int[Tensor, " n"], num_words: int, num_draws: int
) -> Float[Tensor, " n"]:
    """Return the probability of each word to be drawn at all: 1 - (1 - P)^num_draws, stably."""
    return -torch.expm1(num_draws * torch.log1p(-log_uniform(words, num_words)))
