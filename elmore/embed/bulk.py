"""Sentences by the million: a bounded number of tokens at a time, each through the lanes.

Shapes: L LSTM layers, T tokens of a sentence, D width of one direction.
"""

import logging
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from elmore.embed import lanes
from elmore.embed.cache import WordVectors
from elmore.errors import DataError
from elmore.model.bilm import BiLMState
from elmore.weights.bundle import Bundle

_log = logging.getLogger(__name__)


class Bulk:
    """Runs sentences in the order they come, `token_budget` tokens at a time.

    At most that many tokens (or one longer sentence) are held with all their layers. Where a GPU
    runs out of memory the budget is halved, and the work goes on.
    """

    def __init__(
        self, bundle: Bundle, start: BiLMState, *, token_budget: int, cache_megabytes: float
    ) -> None:
        self.bundle = bundle
        self.start = start
        self.token_budget = token_budget
        self.words = WordVectors(bundle.model, bundle.alphabet, megabytes=cache_megabytes)

    def run(self, sentences: Sequence[Sequence[str]]) -> Iterator[Float[Tensor, "L+1 T 2*D"]]:
        """Give the layers of each sentence, boundaries removed, in order."""
        begin = 0
        while begin < len(sentences):
            end, tokens = begin, 0
            while end < len(sentences) and (
                end == begin or tokens + len(sentences[end]) + 2 <= self.token_budget
            ):
                tokens += len(sentences[end]) + 2
                end += 1
            try:
                with self.bundle.without_dropout():
                    window = self._window(sentences[begin:end])
            except torch.OutOfMemoryError as error:
                self._shrink(end - begin, tokens, error)
                continue
            begin = end
            window.reverse()
            while window:  # each is let go as soon as it is taken
                yield window.pop()

    def _shrink(self, num_sentences: int, tokens: int, error: Exception) -> None:
        torch.cuda.empty_cache()
        if num_sentences == 1:
            raise DataError(
                f"a sentence of {tokens} tokens does not fit into the memory of the GPU; split it, "
                "or use device='cpu'"
            ) from error
        self.token_budget = tokens // 2
        _log.warning(
            "out of memory with %d tokens at a time; going on with %d", tokens, self.token_budget
        )

    @torch.no_grad()
    def _window(self, sentences: Sequence[Sequence[str]]) -> list[Float[Tensor, "L+1 T 2*D"]]:
        alphabet, device = self.bundle.alphabet, self.start.cell.device
        whole = [[alphabet.begin, *sentence, alphabet.end] for sentence in sentences]
        numbers: dict[str, int] = {}
        index = [[numbers.setdefault(word, len(numbers)) for word in words] for words in whole]
        vectors = self.words(list(numbers))
        results: list[Tensor | None] = [None] * len(whole)
        cell_dim = self.bundle.config.lstm.cell_dim
        for group in _alike([len(words) for words in whole], cell_dim, device):
            flat = np.concatenate([index[i] for i in group])
            lengths = [len(whole[i]) for i in group]
            tokens = vectors[torch.from_numpy(flat).to(device)]
            layers = lanes.run(self.bundle.model, tokens, lengths, self.start)
            for i, part in zip(group, layers.split(lengths, dim=1), strict=True):
                results[i] = part[:, 1:-1]
        return [result for result in results if result is not None]


def _alike(lengths: list[int], cell_dim: int, device: torch.device) -> list[list[int]]:
    """Put together the sentences that share a number of lanes."""
    groups: dict[int, list[int]] = {}
    for i, length in enumerate(lengths):
        groups.setdefault(lanes.num_lanes(length, cell_dim, device), []).append(i)
    return list(groups.values())
