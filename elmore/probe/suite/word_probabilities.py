"""Log-probabilities of words from the vectors of an embedder, which is faster than `lm.scoring`.

The forward state of the top layer at a token predicts the next token, the backward one the token
before. The states at the boundaries do not depend on the sentence, so they are computed once.

Shapes: T tokens, M positions, D width of one direction, V words.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int

from elmore.embed.embedder import Embedder
from elmore.lm.scoring import context_states, require_softmax
from elmore.lm.word_softmax import WordSoftmax


class WordProbabilities:
    """The softmax of a model, and the states that it predicts from.

    On a CPU the softmax has the precision of the embedder.

    Raises:
        DataError: The model has no softmax.
    """

    def __init__(self, elmo: Embedder) -> None:
        self._elmo = elmo
        on_cpu = elmo.device.type == "cpu"
        self._vocabulary, softmax = require_softmax(elmo.bundle, fast=elmo.is_fast and on_cpu)
        (self.unknown_id,) = self._vocabulary.ids([self._vocabulary.marks.unknown]).tolist()
        self._softmax = softmax if on_cpu else _on_device(softmax, elmo)
        ((self._first, self._last),) = context_states(elmo.bundle, [["."]])  # (1, D)

    def stream_states(
        self, sentences: Iterable[Sequence[str]]
    ) -> Iterator[tuple[Float[np.ndarray, "T D"], Float[np.ndarray, "T D"]]]:
        """Yield for each sentence the states before and after each token."""
        for embedded in self._elmo.stream(map(list, sentences), layers="top"):
            forward, backward = np.split(embedded.vectors, 2, axis=1)
            yield (
                np.concatenate([self._first, forward[:-1]]),
                np.concatenate([backward[1:], self._last]),
            )

    def ids(self, words: Sequence[str]) -> Int[np.ndarray, " M"]:
        """Return the ids of words; a word that is spelled like a mark is unknown."""
        return self._vocabulary.ids_in_text(words)

    def log_probs(
        self, states: Float[np.ndarray, "M D"], words: Sequence[str]
    ) -> Float[np.ndarray, " M"]:
        """Return the log-probability of one word per state."""
        return -self._softmax.nll(states, self.ids(words)).astype(np.float64)

    def all_log_probs(self, states: Float[np.ndarray, "M D"]) -> Float[np.ndarray, "M V"]:
        """Return the log-probability of every word of the vocabulary."""
        return self._softmax.log_probs(states)


def _on_device(softmax: WordSoftmax, elmo: Embedder) -> WordSoftmax:
    """Return the softmax on the device of an embedder."""
    from elmore.weights.modules import copy_sharing_memory

    return WordSoftmax(copy_sharing_memory(softmax.softmax).to(elmo.device))
