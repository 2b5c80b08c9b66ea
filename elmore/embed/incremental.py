"""Embed a text word by word: forward only, with the state as a value that goes in and out.

The backward direction starts at the end of a text, so a text that still grows has none. A word gets
the same bits however the text is split into calls; where native code runs, also those of a batch.

Shapes: L LSTM layers, T tokens, D width of one direction, H cell width.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from elmore.embed.device import Array
from elmore.embed.inference_model import InferenceModel
from elmore.embed.outputs import EmbeddedText, convert, to_host
from elmore.embed.runtime import Runtime
from elmore.embed.sentence_layers import SentenceLayers
from elmore.embed.tokenized import TokenizedText
from elmore.errors import DataError
from elmore.model.state import BACKWARD, FORWARD, BiLMState, LSTMState
from elmore.weights.forward_state import ForwardState


def embed_next(
    inference: InferenceModel,
    text: TokenizedText,
    state: ForwardState | None,
    select: Callable[[SentenceLayers], Array],
    *,
    cells: bool,
) -> tuple[EmbeddedText, ForwardState]:
    """Embed the next words of a text.

    Args:
        inference: The model.
        text: The words, as one segment.
        state: State after the words before them; None for the first ones.
        select: Selects from all layers what is returned.
        cells: Whether to return the memory cells, too.

    Returns:
        The words with their vectors, and the state after them.

    Raises:
        DataError: The state is not one of this model in this precision.
    """
    runtime, *made_by = inference.prepare()
    if not isinstance(state, ForwardState | None):
        found = type(state).__name__
        raise DataError(f"the state must be what the last step returned, or None, found {found}")
    if state is None:
        states = BiLMState(*(part[FORWARD:BACKWARD] for part in runtime.reset_state))
    else:
        state.check(runtime.config.lstm, *made_by)
        states = BiLMState(state.output[None, :, None], state.cell[None, :, None])
    words = text.words
    with runtime.exclusive(), runtime.device.inference():
        started = runtime.device.initial_state(runtime.config, states).direction(FORWARD)
        stack, memory, ends = _run(runtime, words, started, cells=cells)
        lengths = np.array([len(words)])
        vectors = to_host(select(runtime.sentence_layers(stack, lengths)))
        output, cell = (
            np.concatenate([to_host(convert(part, "float32")) for part in parts])
            for parts in zip(*ends, strict=True)
        )
        memory = None if memory is None else to_host(convert(memory, "float32"))
    embedded = EmbeddedText(list(words), vectors, text.offsets, memory)
    return embedded, ForwardState(output, cell, *made_by)


def _run(
    runtime: Runtime, words: Sequence[str], states: list[LSTMState], *, cells: bool
) -> tuple[Float[Array, "L+1 T D"], Float[Array, "L T H"] | None, list[LSTMState]]:
    """Return all layers, the memory cells if they are asked for, and the state after the words."""
    device, lstm = runtime.device, runtime.config.lstm
    vectors = runtime.token_vectors(words)
    layers = device.empty(runtime.num_layers, len(words), lstm.output_dim)
    layers[0] = vectors
    memory = device.empty(lstm.num_layers, len(words), lstm.cell_dim) if cells else None
    gate_inputs = runtime.projections[FORWARD](
        words, lambda at: vectors[runtime.put(np.array(at))]
    )[None]  # (1, T, G)
    # Cells are known only after a call, and the bits of torch depend on the steps of a call.
    size = 1 if cells or runtime.fixed_shapes else max(1, len(words))
    active, never = device.put([np.ones((1, size), bool), np.zeros((1, size), bool)])
    # `never` is true nowhere, so these are not used; a CUDA graph reads the same ones in each call.
    reset_states = runtime.reset_state.direction(FORWARD)
    for begin in range(0, len(words), size):
        steps = slice(begin, begin + size)
        outputs, states = runtime.runners[FORWARD](
            gate_inputs[:, steps], active, states, never, reset_states
        )
        for layer, output in enumerate(outputs, start=1):
            layers[layer, steps] = output[0]
        if memory is not None:
            for layer, state in enumerate(states):
                memory[layer, begin] = state.cell[0]
    return layers, memory, states
