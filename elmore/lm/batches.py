"""Encode TBPTT batches of word types as model inputs: character ids, word ids, softmax targets.

Shapes: N distinct types, C characters, B rows, T tokens; the two directions come first.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from elmore.corpus.stream import NO_TARGET, TBPTTBatch
from elmore.model.softmax import Rare
from elmore.text.characters import Alphabet

_ENCODE_CHUNK = 50_000  # types
_LENGTH_BUCKETS = (9, 13, 20)  # letters; words are encoded by bucket to save padding
_HEADROOM, _MULTIPLE = 1.1, 64  # padded sizes exceed the largest seen, and are multiples of this

PaddingSizes = tuple[int, ...]
"""Number of words in each length bucket of a batch of fixed shape."""


class EncodedWords(NamedTuple):
    """The distinct words of one length bucket, as model inputs."""

    characters: Int[Tensor, "n C"] | None
    word_ids: Int[Tensor, " n"] | None


class Batch(NamedTuple):
    """The inputs and targets of both directions."""

    words: tuple[EncodedWords, ...]
    """The N distinct words by length bucket, short ones first."""
    index: Int[Tensor, "2 B T"]
    """Which of the N words is the input."""
    targets: Int[Tensor, "2 B T"]
    """Word ids of the softmax; `NO_TARGET` where there is none."""
    resets: Bool[Tensor, "2 B T"]
    seeds: tuple[int, int]
    """Seeds of the negative samples of each direction."""
    rare: tuple[Rare, Rare] = ((), ())
    """Positions whose targets are rare words, for an adaptive softmax."""


class BatchEncoder:
    """Encodes every type of a corpus once, and turns batches of types into batches of tensors."""

    def __init__(
        self,
        types: Sequence[str],
        alphabet: Alphabet,
        targets: Int[np.ndarray, " types"],
        *,
        padding_id: int | None,
    ) -> None:
        """Encode all types; `padding_id` is the padding character, None without characters."""
        self.targets = np.append(targets, NO_TARGET)  # so that targets[NO_TARGET] is NO_TARGET
        blocks = [
            alphabet.encode(_with_marks(types[first : first + _ENCODE_CHUNK], alphabet, first))
            for first in range(0, len(types), _ENCODE_CHUNK)
        ]
        self.word_ids = _concatenate([word_ids for _, word_ids in blocks])
        self.characters = _concatenate([_pad(block, blocks, padding_id) for block, _ in blocks])
        self.lengths = np.zeros(len(types), dtype=np.int64)
        if self.characters is not None:
            self.lengths = (self.characters != padding_id).sum(axis=1)

    def encode(
        self,
        source: TBPTTBatch,
        seeds: tuple[int, int] = (0, 0),
        padding_sizes: PaddingSizes | None = None,
    ) -> Batch:
        """Return a batch on the CPU, padded to `padding_sizes` if it fits."""
        types, *directions = source
        order = self.lengths[types].argsort(kind="stable")
        buckets = self._buckets(types[order])
        lengths = [int(self.lengths[bucket[-1]]) if len(bucket) else 0 for bucket in buckets]
        counts = [len(bucket) for bucket in buckets]
        if padding_sizes and all(n <= size for n, size in zip(counts, padding_sizes, strict=True)):
            buckets = [
                np.pad(bucket, (0, size - len(bucket)))
                for bucket, size in zip(buckets, padding_sizes, strict=True)
            ]
            lengths = [*_LENGTH_BUCKETS, int(self.lengths.max())]
        starts = np.cumsum([0, *(len(bucket) for bucket in buckets[:-1])])
        position = np.empty_like(order)
        position[order] = np.concatenate(
            [start + np.arange(count) for start, count in zip(starts, counts, strict=True)]
        )
        index, targets, resets = (np.stack(pair) for pair in zip(*directions, strict=True))
        return Batch(
            tuple(
                self._encoded(bucket, length)
                for bucket, length in zip(buckets, lengths, strict=True)
                if len(bucket)
            ),
            torch.from_numpy(position[index]),
            torch.from_numpy(self.targets[targets]),
            torch.from_numpy(resets),
            seeds,
        )

    def padding_sizes(self, sample: Iterable[TBPTTBatch]) -> PaddingSizes:
        """Return bucket sizes that fit batches like these, with some headroom."""
        counts = np.array(
            [
                [len(bucket) for bucket in self._buckets(types[self.lengths[types].argsort()])]
                for types, *_ in sample
            ]
        )
        return tuple(
            -(-int(_HEADROOM * most) // _MULTIPLE) * _MULTIPLE for most in counts.max(axis=0)
        )

    def _buckets(self, types: Int[np.ndarray, " N"]) -> list[Int[np.ndarray, " n"]]:
        """Split types, sorted by length, into length buckets."""
        return np.split(types, self.lengths[types].searchsorted(_LENGTH_BUCKETS, "right"))

    def _encoded(self, types: Int[np.ndarray, " n"], length: int) -> EncodedWords:
        word_ids = characters = None
        if self.word_ids is not None:
            word_ids = torch.from_numpy(self.word_ids[types])
        if self.characters is not None:
            characters = torch.from_numpy(self.characters[types, :length])
        return EncodedWords(characters, word_ids)


def _with_marks(types: Sequence[str], alphabet: Alphabet, first: int) -> Sequence[str]:
    """Replace the first two types, `<S>` and `</S>`, by this model's own marks."""
    return [alphabet.begin, alphabet.end, *types[2:]] if first == 0 else types


def _pad(
    block: Int[np.ndarray, "N C"] | None, blocks: list, padding_id: int | None
) -> Int[np.ndarray, "N C"] | None:
    """Pad a block to the width of the widest, as int32 to save memory."""
    if block is None or padding_id is None:
        return None
    width = max(other.shape[1] for other, _ in blocks)
    missing = ((0, 0), (0, width - block.shape[1]))
    return np.pad(block.astype(np.int32), missing, constant_values=padding_id)


def _concatenate(parts: list[np.ndarray | None]) -> np.ndarray | None:
    present = [part for part in parts if part is not None]
    return np.concatenate(present) if present else None
