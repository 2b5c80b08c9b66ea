"""Run a biLM over the batches of a corpus: state in, state out, on a GPU as a CUDA graph.

Shapes: N distinct words, B rows, T tokens, D width of one direction, H cell width, L LSTM layers.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from elmore.errors import DataError
from elmore.lm.batches import Batch
from elmore.model.bilm import BiLM
from elmore.model.cuda_streams import run_in_streams
from elmore.model.lstm.call import is_autocast
from elmore.model.state import BACKWARD, FORWARD, BiLMState, LSTMState, stack_states
from elmore.train.loop import State


class _Captured(NamedTuple):
    run: Callable[..., Any]
    shapes: list[torch.Size]
    training: bool
    """Whether dropout was on."""


class BiLMRunner:
    """Runs both stacks of a biLM, and returns their layers from `lowest_layer` to the top.

    It is no module, so a module that holds one does not hold the weights of its biLM.

    Args:
        bilm: The network.
        lowest_layer: Index of the lowest LSTM layer to return; -1: only the top layer.
    """

    def __init__(self, bilm: BiLM, *, lowest_layer: int = -1) -> None:
        self.bilm = bilm
        self._lowest_layer = lowest_layer
        self._captured: _Captured | None = None

    def run(
        self, batch: Batch, state: State | None
    ) -> tuple[list[list[Float[Tensor, "B T D"]]], State]:
        """Return the layers of each direction, in its own order, and the final state."""
        if not self._is_frozen():
            return self._run(batch, state)
        with torch.no_grad(), self._frozen_precision():
            return self._run(batch, state)

    def _run(
        self, batch: Batch, state: State | None
    ) -> tuple[list[list[Float[Tensor, "B T D"]]], State]:
        inputs = self._inputs(batch, state)
        run: Callable[..., Any] = self._module()
        captured = self._captured
        if captured is not None and captured.training == self.bilm.training:
            run = captured.run if captured.shapes == [each.shape for each in inputs] else run
        *layers, output, cell = run(*inputs)
        half = len(layers) // 2
        return [layers[:half], layers[half:]], _rows_first(BiLMState(output, cell))

    def encode_words(self, batch: Batch) -> Float[Tensor, "N D"]:
        """Return the vector of each distinct word of a batch."""
        return self._module().encode_words(_word_tensors(batch))

    def capture_cuda_graph(self, batch: Batch) -> None:
        """Capture a CUDA graph for batches of this shape, with gradients unless it is frozen.

        Launching the many small kernels takes the CPU longer than running them takes the GPU, and
        a graph runs both directions at the same time. The kernels are the same, and so are the
        results. Layers, state and gradients live in memory of the graph until the next batch, so
        gradients cannot be accumulated over several batches. Nothing is captured where a frozen
        network runs by the definition, which reads masks on the CPU.
        """
        if not self._is_frozen():
            self._capture(batch)
            return
        with torch.no_grad(), self._frozen_precision():
            if self.bilm.is_fast or not is_autocast(next(self.bilm.parameters()).device):
                self._capture(batch)

    def _capture(self, batch: Batch) -> None:
        inputs = tuple(each.clone() for each in self._inputs(batch, None))  # memory of its own
        _expect_gradients_from_another_stream()  # already the capture computes some
        with _capture_on(inputs[0].device):
            graph: Any = torch.cuda.make_graphed_callables(self._module(), inputs)
        self._captured = _Captured(graph, [each.shape for each in inputs], self.bilm.training)

    def _is_frozen(self) -> bool:
        """Return whether no weight is trained."""
        return not any(weight.requires_grad for weight in self.bilm.parameters())

    @contextlib.contextmanager
    def _frozen_precision(self) -> Iterator[None]:
        """Let frozen weights multiply in bf16 on a GPU where trained ones do.

        Under autocast and in "exact" precision only the definition runs, which is slow.
        """
        device = next(self.bilm.parameters()).device
        lowers = device.type == "cuda" and is_autocast(device)
        layers = [*self.bilm.lstm_layers] if lowers else []
        before = [layer.precision for layer in layers]
        for layer in layers:
            layer.precision = "fast"
        try:
            yield
        finally:
            for layer, precision in zip(layers, before, strict=True):
                layer.precision = precision

    def _module(self) -> "_BiLMForward":
        return _BiLMForward(self.bilm, self._lowest_layer)

    def _inputs(self, batch: Batch, state: State | None) -> tuple[Tensor, ...]:
        """Return a batch and a state as a flat tuple of tensors."""
        like = next(self.bilm.parameters())
        like = like.new_empty(0, dtype=_state_dtype(like))
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
    """From encoded words to the layers of both LSTM stacks; takes and returns only tensors."""

    def __init__(self, bilm: BiLM, lowest_layer: int) -> None:
        super().__init__()
        self.bilm = bilm
        self.lowest_layer = lowest_layer

    def forward(
        self,
        index: Int[Tensor, "2 B T"],
        resets: Bool[Tensor, "2 B T"],
        output: Float[Tensor, "2 L B D"],
        cell: Float[Tensor, "2 L B H"],
        *words: Int[Tensor, "..."],
    ) -> tuple[Tensor, ...]:
        """Return the layers of the forward and of the backward direction, and the final state."""
        vectors = self.encode_words(words)
        inputs = vectors.index_select(0, index.flatten()).view(*index.shape, -1)  # (2, B, T, D)
        inputs = inputs.to(output.dtype)
        state, zero = BiLMState(output, cell), self.bilm.zero_state(index.shape[1], inputs)
        mask = torch.ones_like(resets[0])

        def run(direction: int) -> tuple[list[Tensor], list[LSTMState]]:
            return self.bilm.run_direction(
                direction,
                inputs[direction],
                mask,
                state.direction(direction),
                resets[direction],
                zero.direction(direction),
            )

        runs = [partial(run, direction) for direction in (FORWARD, BACKWARD)]
        if index.is_cuda and torch.cuda.is_current_stream_capturing():
            directions = run_in_streams(runs, [torch.cuda.Stream(index.device)])
        else:
            directions = [run() for run in runs]
        layers = [layer for outputs, _ in directions for layer in outputs[self.lowest_layer :]]
        return *layers, *stack_states(*(end for _, end in directions))

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


@contextlib.contextmanager
def _capture_on(device: torch.device) -> Iterator[None]:
    """Capture CUDA graphs on this device, in a stream of it.

    Torch captures on the current device, in a stream that it keeps from its first capture, which
    may be of another device; `make_graphed_callables` takes no other stream.
    """
    kept = torch.cuda.graph.default_capture_stream
    with torch.cuda.device(device):
        torch.cuda.graph.default_capture_stream = torch.cuda.Stream(device)
        try:
            yield
        finally:
            torch.cuda.graph.default_capture_stream = kept


def _expect_gradients_from_another_stream() -> None:
    """Keep torch from warning that gradients of a graph come from another stream than its own.

    `make_graphed_callables` keeps the autograd graph of its capture alive, and with it the stream
    in which weights expect their gradients. This holds for the whole process. Older versions of
    torch do not warn.
    """
    set_warning = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
    if set_warning is not None:
        set_warning(False)


def _word_tensors(batch: Batch) -> list[Int[Tensor, "..."]]:
    return [ids for words in batch.words for ids in words if ids is not None]


def _state_dtype(like: Tensor) -> torch.dtype:
    """Return the dtype of matrix products under the current autocast.

    Without gradients it is that of the weights, because inference rounds the factors itself.
    """
    device = like.device.type
    if torch.is_grad_enabled() and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return like.dtype


def _rows_first(state: BiLMState) -> State:
    return {name: part.permute(2, 0, 1, 3) for name, part in state._asdict().items()}


def _bilm_state(state: State, like: Tensor) -> BiLMState:
    """Return a state as the biLM takes it; it may come from another device or precision."""
    output, cell = (state[name].permute(1, 2, 0, 3) for name in BiLMState._fields)
    return BiLMState(output.to(like.dtype), cell.to(torch.promote_types(like.dtype, torch.float32)))
