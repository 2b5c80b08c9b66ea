"""A biLM with its softmax: the probability of each word given the words before or after it.

    loss = sum over directions and positions of -log P(word | context of that direction) / 2

Shapes: N distinct words, B rows, T tokens, D width of one direction, M positions.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from elmore.corpus.stream import NO_TARGET
from elmore.lm.batches import Batch
from elmore.lm.bilm_runner import BiLMRunner
from elmore.model.bilm import BACKWARD, FORWARD, BiLM
from elmore.model.softmax import AdaptiveSoftmax, Softmax
from elmore.train.loop import State, StepOutput


class Predictions(NamedTuple):
    """The top states of one direction that predict a word, and those words."""

    states: Float[Tensor, "M D"]
    targets: Int[Tensor, " M"]


class LanguageModel(nn.Module):
    """A biLM and the softmax that both directions share."""

    def __init__(self, bilm: BiLM, softmax: Softmax | AdaptiveSoftmax) -> None:
        super().__init__()
        self.bilm = bilm
        self.softmax = softmax
        self._runner = BiLMRunner(bilm)

    def forward(self, batch: Batch, state: State | None) -> StepOutput:
        """Return the training loss; every position of a training batch has a target."""
        directions, state = self.run_directions(batch, state)
        return self.prediction_loss(directions, batch, state)

    def prediction_loss(
        self, directions: Sequence[Float[Tensor, "B T D"]], batch: Batch, state: State
    ) -> StepOutput:
        """Return the loss of the predictions from the top layer of each direction."""
        losses = [
            self.softmax.loss(
                self.bilm.dropout(states).flatten(0, 1), targets.flatten(), seed, rare
            )
            for states, targets, seed, rare in zip(
                directions, batch.targets, batch.seeds, batch.rare, strict=True
            )
        ]
        count = torch.full((), batch.targets[0].numel(), device=batch.targets.device)
        return StepOutput((losses[FORWARD].sum() + losses[BACKWARD].sum()) / 2, count, state)

    def predictions(self, batch: Batch, state: State | None) -> tuple[list[Predictions], State]:
        """Return the states of both directions at the positions that have a target."""
        directions, state = self.run_directions(batch, state)
        predictions = []
        for states, targets in zip(directions, batch.targets, strict=True):
            present = targets != NO_TARGET
            predictions.append(Predictions(states[present], targets[present]))
        return predictions, state

    def run_directions(
        self, batch: Batch, state: State | None
    ) -> tuple[list[Float[Tensor, "B T D"]], State]:
        """Return the top layer of each direction, in its own order, and the final state."""
        layers, state = self._runner.run(batch, state)
        return [outputs[-1] for outputs in layers], state

    def encode_words(self, batch: Batch) -> Float[Tensor, "N D"]:
        """Return the vector of each distinct word of a batch."""
        return self._runner.encode_words(batch)

    def capture_cuda_graph(self, batch: Batch) -> None:
        """Capture everything below the softmax as a CUDA graph for batches of this shape."""
        self._runner.capture_cuda_graph(batch)
