"""A biLM and its softmax: how likely each word is after those before it, and before those after.

    loss = sum over directions, positions of -log P(word | what that direction has read) / 2

Shapes: N distinct words, B rows, T tokens, D width of one direction, H cell width, L LSTM layers,
M positions.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from elmore.corpus.stream import ABSENT
from elmore.errors import DataError
from elmore.lm.batches import Batch
from elmore.model.bilm import BACKWARD, FORWARD, BiLM, BiLMState
from elmore.model.softmax import AdaptiveSoftmax, Softmax
from elmore.train.loop import State, StepOutput


class Predictions(NamedTuple):
    """Where one direction predicts: what it knows there, and the word that came."""

    states: Float[Tensor, "M D"]
    targets: Int[Tensor, " M"]


class LanguageModel(nn.Module):
    """Both directions share the words' vectors and the softmax, and never look at each other."""

    def __init__(self, bilm: BiLM, softmax: Softmax | AdaptiveSoftmax) -> None:
        super().__init__()
        self.bilm = bilm
        self.softmax = softmax
        self._recorded: tuple[Callable[..., Any], list[torch.Size]] | None = None

    def forward(self, batch: Batch, state: State | None) -> StepOutput:
        """Give what training minimises; every position of a training batch has its target."""
        directions, state = self.read(batch, state)
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
        """Give what both directions know wherever there is a target."""
        directions, state = self.read(batch, state)
        found = []
        for states, targets in zip(directions, batch.targets, strict=True):
            here = targets != ABSENT
            found.append(Predictions(states[here], targets[here]))
        return found, state

    def read(self, batch: Batch, state: State | None) -> tuple[list[Float[Tensor, "B T D"]], State]:
        """Give the top layer of each direction, in the order it reads, and what is carried on."""
        given = self._given(batch, state)
        read: Callable[..., Any] = _Reading(self.bilm)
        if self._recorded is not None and self.training:
            played, shapes = self._recorded
            read = played if shapes == [each.shape for each in given] else read
        forward, backward, *end = read(*given)
        return [forward, backward], _rows_first(BiLMState(*end))

    def vectors(self, batch: Batch) -> Float[Tensor, "N D"]:
        """Encode each distinct word of a batch."""
        return _Reading(self.bilm).vectors(_spelled(batch))

    def record(self, batch: Batch) -> None:
        """Record all below the softmax for batches of this shape, to be played back in training.

        Its many small kernels take the CPU longer to launch than the GPU to run. What is recorded
        are those kernels, so the results are the same. Gradients lie in the recording's own memory
        until the next batch: they must not be added up over several.
        """
        given = self._given(batch, None)
        played: Any = torch.cuda.make_graphed_callables(_Reading(self.bilm), given)
        self._recorded = played, [each.shape for each in given]

    def _given(self, batch: Batch, state: State | None) -> tuple[Tensor, ...]:
        """Lay out a batch and a state as tensors and nothing else."""
        like = next(self.bilm.parameters())
        like = like.new_empty(0, dtype=_product_dtype(like))
        if state is None:
            state = _rows_first(self.bilm.zero_state(batch.index.shape[1], like))
        lstm, rows = self.bilm.config.lstm, batch.index.shape[1]
        widths = zip(BiLMState._fields, (lstm.output_dim, lstm.cell_dim), strict=True)
        shapes = {name: (rows, 2, lstm.num_layers, width) for name, width in widths}
        if {name: tuple(part.shape) for name, part in state.items()} != shapes:
            raise DataError(
                "the state that the checkpoint carries is not of this model and its rows of text; "
                "remove the checkpoint to go on from an earlier one"
            )
        return batch.index, batch.resets, *_state(state, like), *_spelled(batch)


class _Reading(nn.Module):
    """From spelled words to the top of both stacks: tensors in, tensors out."""

    def __init__(self, bilm: BiLM) -> None:
        super().__init__()
        self.bilm = bilm

    def forward(
        self,
        index: Int[Tensor, "2 B T"],
        resets: Bool[Tensor, "2 B T"],
        output: Float[Tensor, "2 L B D"],
        cell: Float[Tensor, "2 L B H"],
        *spelled: Int[Tensor, "..."],
    ) -> tuple[Tensor, ...]:
        """Give the top of each direction and the state they end in."""
        vectors = self.vectors(spelled)
        words = vectors.index_select(0, index.flatten()).view(*index.shape, -1)  # (2, B, T, D)
        words = words.to(output.dtype)
        state, zero = BiLMState(output, cell), self.bilm.zero_state(index.shape[1], words)
        mask = torch.ones_like(resets[0])
        tops, ends = [], []
        for direction in (FORWARD, BACKWARD):
            outputs, end = self.bilm.run_direction(
                direction,
                words[direction],
                mask,
                state.direction(direction),
                resets[direction],
                zero.direction(direction),
            )
            tops.append(outputs[-1])
            ends.append(end)
        return *tops, *BiLMState.stack(*ends)

    def vectors(self, spelled: Sequence[Int[Tensor, "..."]]) -> Float[Tensor, "N D"]:
        """Encode each distinct word once, for both directions."""
        encode = self.bilm.tokens
        if encode.words is None:
            found = [encode(characters, None) for characters in spelled]
        elif encode.characters is None:
            found = [encode(None, words) for words in spelled]
        else:
            found = [encode(*both) for both in zip(spelled[::2], spelled[1::2], strict=True)]
        # A frequent word gathers the gradients of all its places: that sum wants full precision.
        return torch.cat(found).to(next(self.bilm.parameters()).dtype)


def _spelled(batch: Batch) -> list[Int[Tensor, "..."]]:
    return [ids for words in batch.spelled for ids in words if ids is not None]


def _product_dtype(like: Tensor) -> torch.dtype:
    """Say in which precision matrix products are made here."""
    device = like.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else like.dtype


def _rows_first(state: BiLMState) -> State:
    return {name: part.permute(2, 0, 1, 3) for name, part in state._asdict().items()}


def _state(state: State, like: Tensor) -> BiLMState:
    """Take up what was carried, perhaps by another device in another precision."""
    output, cell = (state[name].permute(1, 2, 0, 3) for name in BiLMState._fields)
    return BiLMState(output.to(like.dtype), cell.to(torch.promote_types(like.dtype, torch.float32)))
