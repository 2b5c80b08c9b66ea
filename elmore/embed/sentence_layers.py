"""All layers of sentences that follow each other, and the cloze vectors of their words.

The cloze vector of a word is the output of the top layer on both sides of it. It depends on every
word of the sentence except the word itself, like the blank of a cloze test:

    cloze[k] = [forward_L[k - 1] ; backward_L[k + 1]]

Before the first word and after the last one are the boundary tokens. context2vec (Melamud et al.,
2016) was trained for such vectors; a biLM has them without further training.

Shapes: L LSTM layers, T words in all, n sentences, D width of one direction.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from elmore.embed.device import Array, Device
from elmore.model.state import BACKWARD, FORWARD


class SentenceLayers(NamedTuple):
    """The layers of sentences, without their boundary tokens."""

    states: Float[Array, "L+1 T 2*D"]
    lengths: Int[np.ndarray, " n"]
    """Words of each sentence."""
    boundary: Float[Array, "2 D"]
    """Top-layer output of each direction at the boundary token that it reads first."""
    device: Device

    def cloze(self) -> Float[Array, "T 2*D"]:
        """Return the cloze vector of each word."""
        top, width = self.states[-1], self.boundary.shape[1]
        vectors = self.device.empty(*top.shape)
        vectors[1:, :width] = top[:-1, :width]
        vectors[:-1, width:] = top[1:, width:]
        lengths = self.lengths[self.lengths > 0]
        ends = np.cumsum(lengths)
        first, last = self.device.put([ends - lengths, ends - 1])
        vectors[first, :width] = self.boundary[FORWARD]
        vectors[last, width:] = self.boundary[BACKWARD]
        return vectors
