"""Sentences by the million: a bounded number of tokens at a time, each through the lanes.

Shapes: L LSTM layers, T tokens of a sentence, D width of one direction.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from elmore.embed import lanes
from elmore.embed.cache import WordVectors
from elmore.embed.recorded import Recorded
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
        self._read = Recorded(bundle.model)
        self.words = WordVectors(bundle.model, bundle.alphabet, megabytes=cache_megabytes)

    def run(
        self, sentences: Sequence[Sequence[str]], choose: Callable[[Tensor], Tensor]
    ) -> Iterator[Float[np.ndarray, "*L T 2*D"]]:
        """Give what is chosen of the layers of each sentence, boundaries removed, in order.

        They are chosen, and leave the device, many at a time. What comes back is to be copied: it
        lies beside the others.
        """
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
                    window = self._window(sentences[begin:end], choose)
            except torch.OutOfMemoryError as error:
                self._shrink(end - begin, tokens, error)
                continue
            begin = end
            window.reverse()
            while window:  # each is let go as soon as it is taken
                yield window.pop()

    def _shrink(self, num_sentences: int, tokens: int, error: Exception) -> None:
        if num_sentences == 1:
            raise DataError(
                f"a sentence of {tokens} tokens does not fit into the memory of the GPU; split it, "
                "or use device='cpu'"
            ) from error
        self.token_budget = tokens // 2
        self._read = Recorded(self.bundle.model)
        torch.cuda.empty_cache()
        _log.warning(
            "out of memory with %d tokens at a time; going on with %d", tokens, self.token_budget
        )

    @torch.no_grad()
    def _window(
        self, sentences: Sequence[Sequence[str]], choose: Callable[[Tensor], Tensor]
    ) -> list[Float[np.ndarray, "*L T 2*D"]]:
        model, alphabet, config = self.bundle.model, self.bundle.alphabet, self.bundle.config
        distinct = dict.fromkeys([alphabet.begin, alphabet.end])
        distinct.update(dict.fromkeys(chain.from_iterable(sentences)))
        numbers = {word: number for number, word in enumerate(distinct)}
        vectors = self.words(list(numbers))
        begin, end = (vectors[numbers[mark]] for mark in (alphabet.begin, alphabet.end))
        start = lanes.after_boundary(model, begin, end, self.start)
        nothing = choose(vectors.new_empty(config.num_layers, 0, 2 * vectors.shape[1]))
        results = [nothing.cpu().numpy()] * len(sentences)
        for group in _alike([len(words) for words in sentences], config.lstm.cell_dim, vectors):
            lengths = [len(sentences[i]) for i in group]
            words = chain.from_iterable(sentences[i] for i in group)
            text = np.fromiter(map(numbers.__getitem__, words), np.int64, sum(lengths))
            layers = choose(lanes.run(model, vectors, text, lengths, start, self._read))
            home, stops = _fetched(layers).numpy(), accumulate(lengths)
            for i, stop, length in zip(group, stops, lengths, strict=True):
                results[i] = home[..., stop - length : stop, :]
        return results


def _fetched(tensor: Tensor) -> Tensor:
    """Bring a tensor home; from a GPU by memory that it can write to itself."""
    if not tensor.is_cuda:
        return tensor.cpu()
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor)


def _alike(lengths: list[int], cell_dim: int, like: Tensor) -> list[list[int]]:
    """Put together the sentences that share a number of lanes, without the empty ones."""
    shared = {n: lanes.num_lanes(n, cell_dim, like.device) for n in set(lengths) if n}
    groups: dict[int, list[int]] = {}
    for i, length in enumerate(lengths):
        if length:
            groups.setdefault(shared[length], []).append(i)
    return list(groups.values())
