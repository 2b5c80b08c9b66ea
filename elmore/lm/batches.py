"""Windows of word types to batches of ids: how each type is spelled, and which target it is.

Shapes: N distinct types, C characters, B rows, T tokens; the directions come first.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from elmore.corpus.stream import ABSENT, Window
from elmore.model.softmax import Rare
from elmore.text.characters import Alphabet

_AT_ONCE = 50_000
_LENGTHS = (9, 13, 20)  # letters: words up to here are encoded together, or most would be padding
_SPARE, _ROUND = 1.1, 64  # a room is larger than what was seen, and a multiple

Room = tuple[int, ...]
"""Words of each group of lengths, so that all batches may have one shape."""


class Spelled(NamedTuple):
    """Some words of about the same length, as a model reads them."""

    characters: Int[Tensor, "n C"] | None
    words: Int[Tensor, " n"] | None


class Batch(NamedTuple):
    """What both directions read and are to predict."""

    spelled: tuple[Spelled, ...]
    """The N distinct words, short ones first."""
    index: Int[Tensor, "2 B T"]
    targets: Int[Tensor, "2 B T"]
    """Words of the softmax; `ABSENT` where there is nothing to predict."""
    resets: Bool[Tensor, "2 B T"]
    seeds: tuple[int, int]
    """Decide the negatives of each direction."""
    rare: tuple[Rare, Rare] = ((), ())
    """Where rare words are the targets, if the softmax tells them apart."""


class Batches:
    """Spells every type of a corpus once, and knows the word of the softmax it stands for."""

    def __init__(
        self,
        types: Sequence[str],
        alphabet: Alphabet,
        targets: Int[np.ndarray, " types"],
        *,
        padding: int | None,
    ) -> None:
        """Take the model's own alphabet, and the character it pads with if it reads any."""
        self.targets = np.append(targets, ABSENT)  # an absent type, -1, has an absent target
        self.padding = padding
        blocks = [
            alphabet.encode(_marked(types[first : first + _AT_ONCE], alphabet, first))
            for first in range(0, len(types), _AT_ONCE)
        ]
        self.words = _joined([words for _, words in blocks])
        self.characters = _joined([_wide(block, blocks, padding) for block, _ in blocks])
        self.lengths = np.zeros(len(types), dtype=np.int64)
        if self.characters is not None:
            self.lengths = (self.characters != padding).sum(axis=1)

    def batch(
        self, window: Window, seeds: tuple[int, int] = (0, 0), room: Room | None = None
    ) -> Batch:
        """Make a batch, on the CPU: of the shape of a room, where it has one and fits in."""
        types, *directions = window
        order = self.lengths[types].argsort(kind="stable")
        groups = self._groups(types[order])
        longest = [int(self.lengths[some[-1]]) if len(some) else 0 for some in groups]
        counts = [len(some) for some in groups]
        if room is not None and all(count <= n for count, n in zip(counts, room, strict=True)):
            groups = [
                np.pad(some, (0, n - len(some))) for some, n in zip(groups, room, strict=True)
            ]
            longest = [*_LENGTHS, int(self.lengths.max())]
        begins = np.cumsum([0, *(len(some) for some in groups[:-1])])
        place = np.empty_like(order)
        place[order] = np.concatenate(
            [begin + np.arange(count) for begin, count in zip(begins, counts, strict=True)]
        )
        index, targets, resets = (np.stack(pair) for pair in zip(*directions, strict=True))
        return Batch(
            tuple(
                self._spelled(*some) for some in zip(groups, longest, strict=True) if len(some[0])
            ),
            torch.from_numpy(place[index]),
            torch.from_numpy(self.targets[targets]),
            torch.from_numpy(resets),
            seeds,
        )

    def room(self, windows: Iterable[Window]) -> Room:
        """Say what windows like these need, with some to spare."""
        counts = np.array(
            [
                [len(some) for some in self._groups(types[self.lengths[types].argsort()])]
                for types, *_ in windows
            ]
        )
        return tuple(-(-int(_SPARE * most) // _ROUND) * _ROUND for most in counts.max(axis=0))

    def _groups(self, types: Int[np.ndarray, " N"]) -> list[Int[np.ndarray, " n"]]:
        """Part types, short ones first, by their lengths."""
        return np.split(types, self.lengths[types].searchsorted(_LENGTHS, "right"))

    def _spelled(self, types: Int[np.ndarray, " n"], longest: int) -> Spelled:
        words = characters = None
        if self.words is not None:
            words = torch.from_numpy(self.words[types])
        if self.characters is not None:
            characters = torch.from_numpy(self.characters[types, :longest])
        return Spelled(characters, words)


def _marked(types: Sequence[str], alphabet: Alphabet, first: int) -> Sequence[str]:
    """Write the marks, which are the first two types, as this model does."""
    return [alphabet.begin, alphabet.end, *types[2:]] if first == 0 else types


def _wide(
    block: Int[np.ndarray, "N C"] | None, blocks: list, padding: int | None
) -> Int[np.ndarray, "N C"] | None:
    """Pad a block to the width of the widest, in little memory."""
    if block is None or padding is None:
        return None
    width = max(other.shape[1] for other, _ in blocks)
    missing = ((0, 0), (0, width - block.shape[1]))
    return np.pad(block.astype(np.int32), missing, constant_values=padding)


def _joined(parts: list[np.ndarray | None]) -> np.ndarray | None:
    present = [part for part in parts if part is not None]
    return np.concatenate(present) if present else None
