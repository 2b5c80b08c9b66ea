"""Predict a word from both sides: the two directions of a language model, combined by Bayes' rule.

As if the words before and those after were independent given the word,

    P(word | before, after)  ~  P(word | before) P(word | after) / P(word)

`P(word)` follows from the rank in the vocabulary by Zipf's law, because models store no counts.

Shapes: P positions, V words.
"""

import numpy as np
from jaxtyping import Float, Int

from elmore.text.vocabulary import Vocabulary


def combine_directions(
    vocabulary: Vocabulary, forward: Float[np.ndarray, "P V"], backward: Float[np.ndarray, "P V"]
) -> Float[np.ndarray, "P V"]:
    """Return log P(v | before, after) of every word; the marks of sentence boundaries have none.

    Args:
        vocabulary: The words of the softmax.
        forward: log P(v | before).
        backward: log P(v | after).
    """
    prior = unigram_log_probs(np.arange(len(vocabulary)), len(vocabulary))
    both = forward + backward - prior.astype(forward.dtype)
    both[:, vocabulary.ids([vocabulary.marks.begin, vocabulary.marks.end])] = -np.inf
    both -= both.max(axis=1, keepdims=True)
    return both - np.log(np.exp(both).sum(axis=1, keepdims=True))


def unigram_log_probs(
    ranks: Int[np.ndarray, "*words"], num_words: int
) -> Float[np.ndarray, "*words"]:
    """Return log P(word) by Zipf's law; a vocabulary is sorted by descending count."""
    return np.log(np.log1p(1 / (ranks + 1)) / np.log(num_words + 1))
