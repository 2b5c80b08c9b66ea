"""A biLM with its softmax: the probability of each word given the words before or after it.

    loss = sum over directions and positions of -log P(word | context of that direction) / 2

Shapes: N distinct words, B rows, T tokens, D width of one direction, H cell width, L LSTM layers,
M positions.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from elmore.corpus.stream import NO_TARGET
from elmore.errors import DataError
from elmore.lm.batches import Batch
from elmore.model.bilm import BACKWARD, FORWARD, BiLM, BiLMState, stack_states
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
        self._cuda_graph: tuple[Callable[..., Any], list[torch.Size]] | None = None

    def forward(self, batch: Batch, state: State | None) -> StepOutput:
        """Return the training loss; every position of a training batch has a target."""
        directions, state = self.run_directions(batch, state)
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
        inputs = self._graph_inputs(batch, state)
        run: Callable[..., Any] = _BiLMForward(self.bilm)
        if self._cuda_graph is not None and self.training:
            graph, shapes = self._cuda_graph
            run = graph if shapes == [each.shape for each in inputs] else run
        forward, backward, *end = run(*inputs)
        return [forward, backward], _rows_first(BiLMState(*end))

    def encode_words(self, batch: Batch) -> Float[Tensor, "N D"]:
        """Return the vector of each distinct word of a batch."""
        return _BiLMForward(self.bilm).encode_words(_word_tensors(batch))

    def capture_cuda_graph(self, batch: Batch) -> None:
        """Capture everything below the softmax as a CUDA graph for batches of this shape.

        Launching its many small kernels takes the CPU longer than running them takes the GPU. The
        kernels are the same, and so are the results. Gradients live in memory of the graph until
        the next batch, so they cannot be accumulated over several batches.
        """
        inputs = self._graph_inputs(batch, None)
        graph: Any = torch.cuda.make_graphed_callables(_BiLMForward(self.bilm), inputs)
        self._cuda_graph = graph, [each.shape for each in inputs]

    def _graph_inputs(self, batch: Batch, state: State | None) -> tuple[Tensor, ...]:
        """Return a batch and a state as a flat tuple of tensors."""
        like = next(self.bilm.parameters())
        like = like.new_empty(0, dtype=_product_dtype(like))
        if state is None:
            state = _rows_first(self.bilm.zero_state(batch.index.shape[1], like))
        lstm, rows = self.bilm.config.lstm, batch.index.shape[1]
        widths = zip(BiLMState._fields, (lstm.output_dim, lstm.cell_dim), strict=True)
        shapes = {name: (rows, 2, lstm.num_layers, width) for name, width in widths}
        if {name: tuple(part.shape) for name, part in state.items()} != shapes:
            raise DataError(
                "the recurrent state in the checkpoint does not fit this model and batch size; "
                "delete the checkpoint to resume from an earlier one"
            )
        return batch.index, batch.resets, *_bilm_state(state, like), *_word_tensors(batch)


class _BiLMForward(nn.Module):
    """From encoded words to the top of both LSTM stacks; takes and returns only tensors."""

    def __init__(self, bilm: BiLM) -> None:
        super().__init__()
        self.bilm = bilm

    def forward(
        self,
        index: Int[Tensor, "2 B T"],
        resets: Bool[Tensor, "2 B T"],
        output: Float[Tensor, "2 L B D"],
        cell: Float[Tensor, "2 L B H"],
        *words: Int[Tensor, "..."],
    ) -> tuple[Tensor, ...]:
        """Return the top layer of each direction and the final state."""
        vectors = self.encode_words(words)
        inputs = vectors.index_select(0, index.flatten()).view(*index.shape, -1)  # (2, B, T, D)
        inputs = inputs.to(output.dtype)
        state, zero = BiLMState(output, cell), self.bilm.zero_state(index.shape[1], inputs)
        mask = torch.ones_like(resets[0])
        tops, ends = [], []
        for direction in (FORWARD, BACKWARD):
            outputs, end = self.bilm.run_direction(
                direction,
                inputs[direction],
                mask,
                state.direction(direction),
                resets[direction],
                zero.direction(direction),
            )
            tops.append(outputs[-1])
            ends.append(end)
        return *tops, *stack_states(*ends)

    def encode_words(self, words: Sequence[Int[Tensor, "..."]]) -> Float[Tensor, "N D"]:
        """Encode each distinct word once, for both directions."""
        encode = self.bilm.tokens
        if encode.words is None:
            vectors = [encode(characters, None) for characters in words]
        elif encode.characters is None:
            vectors = [encode(None, word_ids) for word_ids in words]
        else:
            vectors = [encode(*both) for both in zip(words[::2], words[1::2], strict=True)]
        # A frequent word sums the gradients of all its positions, which needs full precision.
        return torch.cat(vectors).to(next(self.bilm.parameters()).dtype)


def _word_tensors(batch: Batch) -> list[Int[Tensor, "..."]]:
    return [ids for words in batch.words for ids in words if ids is not None]


def _product_dtype(like: Tensor) -> torch.dtype:
    """Return the dtype of matrix products under the current autocast."""
    device = like.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else like.dtype


def _rows_first(state: BiLMState) -> State:
    return {name: part.permute(2, 0, 1, 3) for name, part in state._asdict().items()}


def _bilm_state(state: State, like: Tensor) -> BiLMState:
    """Return a state as the biLM takes it; it may come from another device or precision."""
    output, cell = (state[name].permute(1, 2, 0, 3) for name in BiLMState._fields)
    return BiLMState(output.to(like.dtype), cell.to(torch.promote_types(like.dtype, torch.float32)))
