"""A biLM and its softmax: how likely each word is after those before it, and before those after.

    loss = sum over directions, positions of -log P(word | what that direction has read) / 2

Shapes: N distinct words, B rows, T tokens, D width of one direction, H cell width, L LSTM layers,
M positions.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from elmore.corpus.stream import ABSENT
from elmore.lm.batches import Batch
from elmore.model.bilm import BACKWARD, FORWARD, BiLM, BiLMState
from elmore.model.softmax import AdaptiveSoftmax, Softmax
from elmore.train.loop import Carried, Outcome


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
        self._recorded: tuple[Callable[..., Any], torch.Size] | None = None

    def forward(self, batch: Batch, carried: Carried | None) -> Outcome:
        """Give what training minimises; every position of a training batch has its target."""
        directions, carried = self.read(batch, carried, self.vectors(batch))
        losses = [
            self.softmax.loss(self.bilm.dropout(states).flatten(0, 1), targets.flatten(), seed)
            for states, targets, seed in zip(directions, batch.targets, batch.seeds, strict=True)
        ]
        count = torch.full((), batch.targets[0].numel(), device=batch.targets.device)
        return Outcome((losses[FORWARD].sum() + losses[BACKWARD].sum()) / 2, count, carried)

    def predictions(
        self, batch: Batch, carried: Carried | None
    ) -> tuple[list[Predictions], Carried]:
        """Give what both directions know wherever there is a target."""
        directions, carried = self.read(batch, carried, self.vectors(batch))
        found = []
        for states, targets in zip(directions, batch.targets, strict=True):
            here = targets != ABSENT
            found.append(Predictions(states[here], targets[here]))
        return found, carried

    def vectors(self, batch: Batch) -> Float[Tensor, "N D"]:
        """Encode each distinct word of a batch once, for both directions."""
        found = torch.cat([self.bilm.tokens(*words) for words in batch.spelled])
        # A frequent word gathers the gradients of all its places: that sum wants full precision.
        return found.to(next(self.bilm.parameters()).dtype)

    def read(
        self, batch: Batch, carried: Carried | None, vectors: Float[Tensor, "N D"]
    ) -> tuple[list[Float[Tensor, "B T D"]], Carried]:
        """Give the top layer of each direction, in the order it reads, and what is carried on."""
        shape = batch.index.shape
        words = vectors.index_select(0, batch.index.flatten()).view(*shape, -1)  # (2, B, T, D)
        words = words.to(_product_dtype(words))
        state = self.bilm.zero_state(shape[1], words) if carried is None else _state(carried, words)
        stacks: Callable[..., Any] = _Stacks(self.bilm)
        if self._recorded is not None and self.training and self._recorded[1] == shape:
            stacks = self._recorded[0]
        forward, backward, *state = stacks(*words, *batch.resets, *state)
        return [forward, backward], _rows_first(BiLMState(*state))

    def record(self, num_rows: int, num_steps: int) -> None:
        """Record the stacks for batches of one shape, to be played back on a GPU in training.

        Their many small kernels take the CPU longer to launch than the GPU to run. What is recorded
        are those kernels, so the results are the same. Gradients lie in the recording's own memory
        until the next batch: they must not be added up over several.
        """
        like = next(self.bilm.parameters())
        shape = (num_rows, num_steps, self.bilm.config.lstm.output_dim)
        words = [
            like.new_zeros(shape, dtype=_product_dtype(like), requires_grad=True) for _ in range(2)
        ]
        resets = torch.zeros(2, *shape[:2], dtype=torch.bool, device=like.device)
        state = _state(_rows_first(self.bilm.zero_state(num_rows, words[0])), words[0])
        stacks: Any = torch.cuda.make_graphed_callables(
            _Stacks(self.bilm), (*words, *resets, *state)
        )
        self._recorded = stacks, resets.shape


class _Stacks(nn.Module):
    """Both stacks of LSTMs, tensors in and tensors out."""

    def __init__(self, bilm: BiLM) -> None:
        super().__init__()
        self.layers = nn.ModuleList(bilm.stacks)
        self._bilm = (bilm,)  # its other weights are none of ours

    def forward(
        self,
        ahead: Float[Tensor, "B T D"],
        behind: Float[Tensor, "B T D"],
        ahead_resets: Bool[Tensor, "B T"],
        behind_resets: Bool[Tensor, "B T"],
        output: Float[Tensor, "2 L B D"],
        cell: Float[Tensor, "2 L B H"],
    ) -> tuple[Tensor, ...]:
        """Give the top of each direction and the state they end in."""
        (bilm,) = self._bilm
        state, zero = BiLMState(output, cell), bilm.zero_state(len(ahead), ahead)
        mask = torch.ones_like(ahead_resets)
        tops, ends = [], []
        for direction, words, resets in (
            (FORWARD, ahead, ahead_resets),
            (BACKWARD, behind, behind_resets),
        ):
            outputs, end = bilm.read(
                direction, words, mask, state.of(direction), resets, zero.of(direction)
            )
            tops.append(outputs[-1])
            ends.append(end)
        return *tops, *BiLMState.stack(*ends)


def _product_dtype(like: Tensor) -> torch.dtype:
    """Say in which precision matrix products are made here."""
    device = like.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else like.dtype


def _rows_first(state: BiLMState) -> Carried:
    return {name: part.permute(2, 0, 1, 3) for name, part in state._asdict().items()}


def _state(carried: Carried, like: Tensor) -> BiLMState:
    """Take up what was carried, perhaps by another device in another precision."""
    output, cell = (carried[name].permute(1, 2, 0, 3) for name in BiLMState._fields)
    return BiLMState(output.to(like.dtype), cell.to(torch.promote_types(like.dtype, torch.float32)))
