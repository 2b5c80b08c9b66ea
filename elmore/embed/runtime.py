"""Runtime: a model ready to run on one device, with what is worth keeping between calls.

Shapes: L LSTM layers, D width of one direction, H cell width.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from elmore.embed.device import CUDAGraphRunner, RunStack, limits_for, tensor_maker
from elmore.embed.word_tables import ProjectionCache, TokenVectorCache
from elmore.model.bilm import BACKWARD, FORWARD, BiLM, BiLMState
from elmore.model.lstm.backends import is_bitwise_stable
from elmore.model.lstm.native import NativeStack
from elmore.weights.bundle import Bundle


class Runtime:
    """What every way of embedding shares: model, caches, CUDA graphs and limits.

    An embedder has one for as long as its weights and backends stay as they are. Several threads
    may use it. `cache_megabytes` bounds the caches: four sevenths are for token vectors, and the
    rest for the gate inputs of both directions. They grow with the words that they meet.

    A sentence gets the same bits alone and in any batch. Where the native library runs all layers
    it guarantees that; elsewhere `fixed_shapes` is true, and every product has a number of rows
    that does not depend on the other sentences.
    """

    def __init__(
        self,
        bundle: Bundle,
        start: BiLMState,
        *,
        token_budget: int | None = None,
        cache_megabytes: float | None = None,
    ) -> None:
        self.model, self.alphabet, self.config = bundle.model, bundle.alphabet, bundle.config
        self.num_layers, self.width = self.config.num_layers, self.config.width
        self.device = start.output.device
        self.tensor = tensor_maker(self.device)
        self.limits = limits_for(self.device)
        native_stacks = self.model.native_stacks()
        self.fixed_shapes = (
            native_stacks is None
            or start.output.dtype != torch.float32
            or not is_bitwise_stable(self.device)
        )
        self.token_budget = token_budget or self.limits.window_tokens
        megabytes = self.limits.cache_megabytes if cache_megabytes is None else cache_megabytes
        self.token_vectors = TokenVectorCache(
            self.model,
            self.alphabet,
            megabytes=megabytes * 4 / 7,
            fixed_shapes=self.fixed_shapes,
        )
        self.stacks, project = self._prepare_stacks(native_stacks)
        no_words = start.output.new_empty(0, 4 * self.config.lstm.cell_dim)
        self.projections = [
            ProjectionCache(
                each, no_words, megabytes=megabytes * 3 / 14, fixed_shapes=self.fixed_shapes
            )
            for each in project
        ]
        with torch.no_grad():
            begin, end = self.token_vectors([self.alphabet.begin, self.alphabet.end])
            self.reset_state = state_after_boundary_token(self.model, begin, end, start)
        self.runners = self._capture_stacks()
        self._lock = threading.Lock()

    def _prepare_stacks(
        self, native_stacks: list[NativeStack] | None
    ) -> tuple[Sequence[RunStack], list[Callable[[Tensor], Tensor]]]:
        """Return for each direction what runs its layers, and what projects its inputs."""
        if native_stacks is not None:
            return native_stacks, [stack.project_inputs for stack in native_stacks]
        both, model = (FORWARD, BACKWARD), self.model
        run = partial(model.run_direction, projected=True, training=False)
        return [partial(run, each) for each in both], [
            partial(model.project_inputs, i) for i in both
        ]

    def _capture_stacks(self) -> Sequence[RunStack]:
        """Return `stacks`, on a GPU as CUDA graphs: the next call overwrites their outputs."""
        is_gpu = self.device.type == "cuda"
        return [CUDAGraphRunner(stack) for stack in self.stacks] if is_gpu else self.stacks

    def exclusive(self) -> AbstractContextManager[object]:
        """Return a lock for the use of CUDA graphs, whose outputs the next call overwrites."""
        return self._lock if self.device.type == "cuda" else nullcontext()

    def halve_token_budget(self, tokens: int) -> None:
        """Go on with windows half as large, after a GPU ran out of memory with `tokens` tokens."""
        self.token_budget = tokens // 2
        self.runners = self._capture_stacks()
        torch.cuda.empty_cache()

    def reset_rows(self, num_rows: int) -> BiLMState:
        """Return the state in which sentences begin, for a number of rows."""
        return BiLMState(*(part.expand(-1, -1, num_rows, -1) for part in self.reset_state))


def state_after_boundary_token(
    model: BiLM, begin: Float[Tensor, " D"], end: Float[Tensor, " D"], start: BiLMState
) -> BiLMState:
    """Return the state of one row after the boundary token that each direction reads first.

    Every sentence begins with the same `<S>`, so the state after it is computed once and used as
    the reset state; packed rows never contain boundary tokens.
    """
    mask = torch.ones(1, 1, dtype=torch.bool, device=begin.device)
    ends = [
        model.run_direction(
            direction, token[None, None], mask, start.direction(direction), training=False
        )[1]
        for direction, token in ((FORWARD, begin), (BACKWARD, end))
    ]
    return BiLMState.stack(*ends)
