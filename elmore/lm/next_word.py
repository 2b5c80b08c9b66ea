"""The word that comes next in a text that is read word by word: its probability and surprisal.

    surprisal(word) = -log2 P(word | the words before)

The forward state after some words is all that the prediction needs, so a live text is scored at the
cost of one direction.

Shapes: V words of the vocabulary, L LSTM layers, D width of one direction, N words.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from elmore.errors import DataError
from elmore.lm.scoring import require_softmax
from elmore.lm.unknown_word_cost import UnknownWordCost
from elmore.text.characters import check_tokens
from elmore.weights.bundle import Bundle
from elmore.weights.digest import model_digest
from elmore.weights.forward_state import ForwardState


class NextWord:
    """Predicts the word after a forward state; `Embedder.step([])` returns the one of a new text.

    Args:
        bundle: A model with a softmax: that of the embedder (`embedder.bundle`).

    Raises:
        DataError: The model has no softmax.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._vocabulary, self._softmax = require_softmax(bundle)
        self._lstm, self._byte_counts = bundle.config.lstm, bundle.byte_counts
        self._model = model_digest(bundle)

    def log_probs(self, state: ForwardState) -> Float[np.ndarray, " V"]:
        """Return the log-probability of every word of the vocabulary as the next word.

        Args:
            state: The state after the words before it.

        Returns:
            Natural logarithms, in the order of `bundle.vocabulary`.

        Raises:
            DataError: The state is not one of this model.
        """
        if not isinstance(state, ForwardState):
            raise DataError(
                f"a state of Embedder.step is expected, found {type(state).__name__}; a new text "
                "has the one of step([])"
            )
        state.check(self._lstm, self._model)
        top = state.output[-1]
        if self._lstm.skip_connections:  # the output of a layer is added to that of the next
            top = np.add.accumulate(state.output)[-1]
        return self._softmax.log_probs(top[None])[0]

    def surprisal(self, words: Sequence[str], state: ForwardState) -> Float[np.ndarray, " N"]:
        """Return the surprisal of each word as the next one, in bits.

        A word outside the vocabulary costs the surprisal of an unknown word and the bits to spell
        it, as in `elmore surprisal`.

        Args:
            words: Candidates for the next word.
            state: The state after the words before it.

        Returns:
            Bits of each candidate.

        Raises:
            DataError: The state is not one of this model, or `words` is a string.
        """
        if isinstance(words, str):
            raise DataError(f"a list of words is expected; pass [{words[:30]!r}] for one")
        check_tokens(words)
        ids = self._vocabulary.ids_in_text(words)
        (unknown,) = self._vocabulary.ids([self._vocabulary.marks.unknown])
        spelling = UnknownWordCost(words, ids, int(unknown), self._byte_counts)
        return -self.log_probs(state)[ids].astype(np.float64) / math.log(2) + spelling.bits
