"""Log-probabilities of words from the vectors of an embedder, which is faster than `lm.scoring`.

The forward state of the top layer at a token predicts the next token, the backward one the token
before. The states at the boundaries do not depend on the sentence, so they are computed once.

Shapes: T tokens, M positions, D width of one direction, V words.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from elmore.embed.embedder import Embedder
from elmore.lm.scoring import context_states, require_softmax
from elmore.weights.bundle import copy_sharing_memory


class WordProbabilities:
    """The softmax of a model, and the states that it predicts from.

    Raises:
        DataError: The model has no softmax.
    """

    def __init__(self, elmo: Embedder) -> None:
        self._elmo = elmo
        self._vocabulary, softmax = require_softmax(elmo.bundle)
        (self.unknown_id,) = self._vocabulary.ids([self._vocabulary.marks.unknown]).tolist()
        self._softmax = copy_sharing_memory(softmax).to(elmo.device)
        with torch.no_grad():
            ((first, last),) = context_states(elmo.bundle, [["."]])
        self._first, self._last = first.float().cpu(), last.float().cpu()  # (1, D)

    def stream_states(
        self, sentences: Iterable[Sequence[str]]
    ) -> Iterator[tuple[Float[Tensor, "T D"], Float[Tensor, "T D"]]]:
        """Yield for each sentence the states before and after each token."""
        for embedded in self._elmo.stream(map(list, sentences), layers="top"):
            forward, backward = torch.from_numpy(embedded.vectors).chunk(2, dim=1)
            yield (
                torch.cat([self._first, forward[:-1]]),
                torch.cat([backward[1:], self._last]),
            )

    def ids(self, words: Sequence[str]) -> Int[np.ndarray, " M"]:
        """Return the ids of words; a word that is spelled like a mark is unknown."""
        marks = self._vocabulary.marks
        return self._vocabulary.ids([marks.unknown if word in marks else word for word in words])

    @torch.no_grad()
    def log_probs(
        self, states: Float[Tensor, "M D"], words: Sequence[str]
    ) -> Float[np.ndarray, " M"]:
        """Return the log-probability of one word per state."""
        targets = torch.from_numpy(self.ids(words)).to(self._elmo.device)
        return -self._softmax.nll(states.to(self._elmo.device), targets).cpu().double().numpy()

    @torch.no_grad()
    def all_log_probs(self, states: Float[Tensor, "M D"]) -> Float[np.ndarray, "M V"]:
        """Return the log-probability of every word of the vocabulary."""
        return self._softmax.log_probs(states.to(self._elmo.device)).cpu().numpy()
