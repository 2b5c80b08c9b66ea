"""Draw negatives for the sampled softmax: words by a log-uniform law over their ranks.

    P(k) = (ln(k + 2) - ln(k + 1)) / ln(V + 1)                        k = 0 .. V - 1

A vocabulary sorted by falling count follows nearly such a law (Zipf), so the negatives are about as
frequent as words are. Everything here is computed in float64: in float32 the ranks of a large
vocabulary run together.

Shapes: n negatives, V words.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Negatives(NamedTuple):
    """Drawn words, and in how many draws."""

    words: Int[Tensor, " n"]
    num_draws: int


def log_uniform(words: Int[Tensor, " n"], num_words: int) -> Float[Tensor, " n"]:
    """Give the probability of each word in one draw."""
    return (words.double() + 1).reciprocal().log1p() / math.log(num_words + 1)


def draw(num_samples: int, num_words: int, generator: torch.Generator) -> Negatives:
    """Draw with replacement, on the device of the generator: a frequent word comes many times."""
    uniform = torch.rand(
        num_samples, generator=generator, device=generator.device, dtype=torch.float64
    )
    ranks = (uniform * math.log(num_words + 1)).exp().long() - 1  # the inverse of the cumulated P
    return Negatives(ranks.clamp(0, num_words - 1), num_samples)


def draw_unique(num_samples: int, num_words: int, generator: torch.Generator) -> Negatives:
    """Draw until `num_samples` words are distinct, as TensorFlow does; repeats are dropped."""
    draws = draw(4 * num_samples, num_words, generator).words
    while (first := _first_seen(draws)).sum() < num_samples:
        draws = torch.cat([draws, draw(len(draws), num_words, generator).words])
    num_draws = int((first.cumsum(dim=0) < num_samples).sum()) + 1
    return Negatives(draws[:num_draws][first[:num_draws]], num_draws)


def _first_seen(draws: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
    """Say of each draw whether its word had not come before."""
    words, order = draws.sort(stable=True)
    first = torch.ones_like(draws, dtype=torch.bool)
    first[order[1:]] = words[1:] != words[:-1]
    return first


def expected_counts(
    words: Int[Tensor, " n"], num_words: int, num_draws: int
) -> Float[Tensor, " n"]:
    """Give how often each word is expected in draws with replacement."""
    return num_draws * log_uniform(words, num_words)


def expected_unique(
    words: Int[Tensor, " n"], num_words: int, num_draws: int
) -> Float[Tensor, " n"]:
    """Give how likely each word is to come at all: 1 - (1 - P)^num_draws, stably."""
    return -torch.expm1(num_draws * torch.log1p(-log_uniform(words, num_words)))
