"""Sentences by the million: a bounded number of tokens at a time, each through the lanes.

Shapes: L LSTM layers, T tokens of a sentence, D width of one direction.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from elmore.embed import lanes
from elmore.embed.cache import WordVectors
from elmore.embed.recorded import Recorded
from elmore.embed.transfer import Fetched
from elmore.errors import DataError
from elmore.model.bilm import BiLMState
from elmore.weights.bundle import Bundle

_log = logging.getLogger(__name__)


class Bulk:
    """Runs sentences in the order they come, `token_budget` tokens at a time.

    At most that many tokens (or one longer sentence) are held with all their layers, and where a
    GPU reads, what is chosen of as many again. Where it runs out of memory the budget is halved,
    and the work goes on.
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
        self, windows: Iterable[Sequence[Sequence[str]]], choose: Callable[[Tensor], Tensor]
    ) -> Iterator[Float[np.ndarray, "*L T 2*D"]]:
        """Give what is chosen of the layers of each sentence, boundaries removed, in order.

        They are chosen, and leave the device, many at a time. What comes back is to be copied: it
        lies beside the others. A GPU reads a window while the one before is being taken; so an
        error in the texts comes before the vectors of a window that has been read.
        """
        ahead = 1 if self.start.cell.is_cuda else 0
        under_way: deque[Iterator[np.ndarray]] = deque()
        for sentences in windows:
            for window in self._begun(sentences, choose):
                under_way.append(window)
                if len(under_way) > ahead:
                    yield from under_way.popleft()
        for window in under_way:
            yield from window

    def _begun(
        self, sentences: Sequence[Sequence[str]], choose: Callable[[Tensor], Tensor]
    ) -> Iterator[Iterator[Float[np.ndarray, "*L T 2*D"]]]:
        """Have the device read sentences, as many at a time as the budget allows."""
        begin = 0
        while begin < len(sentences):
            end, tokens = begin, 0
            while end < len(sentences) and (
                end == begin or tokens + len(sentences[end]) + 2 <= self.token_budget
            ):
                tokens += len(sentences[end]) + 2
                end += 1
            try:
                window = self._window(sentences[begin:end], choose)
            except torch.OutOfMemoryError as error:
                self._shrink(end - begin, tokens, error)
                continue
            begin = end
            yield window

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
    ) -> Iterator[Float[np.ndarray, "*L T 2*D"]]:
        model, alphabet, config = self.bundle.model, self.bundle.alphabet, self.bundle.config
        numbers = _Numbers()
        first, last = numbers[alphabet.begin], numbers[alphabet.end]
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        words = map(numbers.__getitem__, chain.from_iterable(sentences))
        text = np.fromiter(words, np.int64, lengths.sum())
        vectors = self.words(list(numbers))
        start = lanes.after_boundary(model, vectors[first], vectors[last], self.start)
        nothing = choose(torch.empty(config.num_layers, 0, config.width, dtype=vectors.dtype))
        found: dict[int, Iterator[np.ndarray]] = {0: repeat(nothing.numpy())}
        shared = _num_lanes(lengths, config.lstm.cell_dim, vectors.device)
        for number in np.unique(shared[shared > 0]).tolist():
            alike = shared == number
            part = text[np.repeat(alike, lengths)], lengths[alike]
            layers = choose(lanes.run(model, vectors, *part, start, self._read))
            found[number] = _cut(Fetched(layers), lengths[alike])
        return _in_turn(found, shared)


class _Numbers(dict[str, int]):
    """Numbers words as they come."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


def _num_lanes(
    lengths: Int[np.ndarray, " n"], cell_dim: int, device: torch.device
) -> Int[np.ndarray, " n"]:
    """Say how many lanes each sentence shares: none where it is empty."""
    distinct, which = np.unique(lengths, return_inverse=True)
    shared = [lanes.num_lanes(n, cell_dim, device) if n else 0 for n in distinct.tolist()]
    return np.array(shared, dtype=np.int64)[which]


def _cut(
    fetched: Fetched, lengths: Int[np.ndarray, " n"]
) -> Iterator[Float[np.ndarray, "*L T 2*D"]]:
    """Give sentence after sentence, from when the first is asked for."""
    home, begin = fetched.numpy(), 0
    for end in np.cumsum(lengths).tolist():
        yield home[..., begin:end, :]
        begin = end


def _in_turn(
    found: dict[int, Iterator[np.ndarray]], shared: Int[np.ndarray, " n"]
) -> Iterator[np.ndarray]:
    """Bring those of different numbers of lanes back into order."""
    for number in shared.tolist():
        yield next(found[number])
