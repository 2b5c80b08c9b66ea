"""Runtime: a model ready to run on one device, with what is worth keeping between calls.

Shapes: L LSTM layers, D width of one direction, H cell width, T words of n sentences.
"""

import threading
from contextlib import AbstractContextManager, nullcontext

import numpy as np
from jaxtyping import Float, Int

from elmore.embed.device import Array, Network
from elmore.embed.sentence_layers import SentenceLayers
from elmore.embed.word_tables import ProjectionCache, TokenVectorCache
from elmore.model.state import BACKWARD, FORWARD, BiLMState, stack_states
from elmore.text.characters import Alphabet


class Runtime:
    """What every way of embedding shares: model, caches, CUDA graphs and limits.

    An embedder has one for as long as its weights and backends stay as they are. Several threads
    may use it.

    A sentence gets the same bits alone and in any batch. Where the native library runs the network
    it guarantees that; elsewhere `fixed_shapes` is true, and every matrix product has a number of
    rows that does not depend on the other sentences.

    Args:
        network: The model as functions on arrays of its device.
        alphabet: Encodes words as ids.
        start: The state before the boundary token; zeros for None.
        token_budget: Tokens that are held at a time, by default those of the device's limits.
        cache_megabytes: Bounds the caches, which grow with the words they meet: four sevenths for
            token vectors, and the rest for the gate inputs of both directions.
    """

    def __init__(
        self,
        network: Network,
        alphabet: Alphabet,
        start: BiLMState | None = None,
        *,
        token_budget: int | None = None,
        cache_megabytes: float | None = None,
    ) -> None:
        self.config, self.device, self.stacks = network.config, network.device, network.stacks
        self.num_layers, self.width = self.config.num_layers, self.config.width
        self.limits = self.device.limits
        self.fixed_shapes = network.fixed_shapes
        self.token_budget = token_budget or self.limits.window_tokens
        megabytes = self.limits.cache_megabytes if cache_megabytes is None else cache_megabytes
        with self.device.inference():
            self.token_vectors = TokenVectorCache(network, alphabet, megabytes=megabytes * 4 / 7)
            self.projections = [
                ProjectionCache(network, direction, megabytes=megabytes * 3 / 14)
                for direction in (FORWARD, BACKWARD)
            ]
            begin, end = self.token_vectors([alphabet.begin, alphabet.end])
            boundary = run_boundary_tokens(network, begin, end, start)
        self.reset_state, self.boundary_output = boundary
        self.runners = [self.device.capture(stack) for stack in self.stacks]
        self._lock = threading.Lock()

    def exclusive(self) -> AbstractContextManager[object]:
        """Return a lock for the use of CUDA graphs, whose outputs the next call overwrites."""
        return self._lock if self.device.type == "cuda" else nullcontext()

    @property
    def can_shorten_chunks(self) -> bool:
        """Whether chunks of a packed batch could have fewer steps."""
        return self.limits.max_chunk_steps > self.limits.chunk_steps

    def reduce_memory(self, token_budget: int) -> None:
        """Use another budget and shorter chunks, after a GPU ran out of memory.

        Chunks keep a multiple of `chunk_steps`, so no bit changes.
        """
        self.token_budget = token_budget
        shortest = self.limits.chunk_steps
        multiple = max(1, self.limits.max_chunk_steps // shortest // 2)
        self.limits = self.limits._replace(max_chunk_steps=shortest * multiple)
        # dropping the CUDA graphs frees their memory
        self.runners = [self.device.capture(stack) for stack in self.stacks]
        self.device.free_memory()

    def put(self, array: np.ndarray) -> Array:
        """Return an array of the device with these values."""
        return self.device.put([array])[0]

    def sentence_layers(
        self, states: Float[Array, "L+1 T 2*D"], lengths: Int[np.ndarray, " n"]
    ) -> SentenceLayers:
        """Return the layers of sentences of these lengths, with what is at their boundaries."""
        return SentenceLayers(states, lengths, self.boundary_output, self.device)

    def reset_rows(self, num_rows: int) -> BiLMState:
        """Return the state in which sentences begin, for a number of rows."""
        return BiLMState(*(self.device.repeat_row(part, num_rows) for part in self.reset_state))


def run_boundary_tokens(
    network: Network, begin: Float[Array, " D"], end: Float[Array, " D"], start: BiLMState | None
) -> tuple[BiLMState, Float[Array, "2 D"]]:
    """Run the boundary token that each direction reads first.

    Every sentence begins with the same `<S>`, so the state after it is computed once and used as
    the reset state; packed rows never contain boundary tokens.

    Returns:
        The state of one row after the token, and the output of the top layer at it.
    """
    device = network.device
    state = device.initial_state(network.config, start)
    (mask,) = device.put([np.ones((1, 1), dtype=bool)])
    runs = [
        network.stacks[direction](
            token[None, None], mask, state.direction(direction), projected=False
        )
        for direction, token in ((FORWARD, begin), (BACKWARD, end))
    ]
    tops = [outputs[-1][:, 0] for outputs, _ in runs]  # (1, D) each
    return stack_states(*(ends for _, ends in runs)), device.concatenate(tops, axis=0)
