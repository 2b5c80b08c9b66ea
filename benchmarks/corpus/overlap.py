"""Find duplicate text, and text that shares a 13-gram with an evaluation text."""

import hashlib
import lzma
from pathlib import Path
from typing import NamedTuple

import numpy as np

EVALUATION_WIDTH = 13
NEAR_WIDTH = 8  # words of a gram by which near duplicates are found
MIN_GRAMS = 8  # fewer say too little of a paragraph
SAME = 0.5  # the share of grams seen before that makes a paragraph, or a document, a duplicate
_BASE = 0x9E3779B97F4A7C15  # odd: has an inverse modulo 2**64
_INVERSE = pow(_BASE, -1, 1 << 64)
_MIX = np.uint64(0xD6E8FEB86659FD93)


class Grams(NamedTuple):
    """The n-grams of the paragraphs of a document: hashes, and the paragraph each stands in."""

    hashes: np.ndarray
    paragraphs: np.ndarray


def _powers(base: int, count: int) -> np.ndarray:
    powers = np.full(count, base, dtype="u8")
    powers[:1] = 1
    return np.cumprod(powers, dtype="u8")


def _spans(
    paragraphs: list[list[bytes]], width: int
) -> tuple[bytes, np.ndarray, np.ndarray, np.ndarray]:
    """Return the text, the first and last byte of each of its n-grams, and their paragraphs."""
    joined = b" ".join([b" ".join(words) for words in paragraphs if words])
    spaces = np.flatnonzero(np.frombuffer(joined, dtype="u1") == ord(" "))
    starts = np.concatenate(([0], spaces + 1))
    ends = np.append(spaces, len(joined))
    owners = np.repeat(np.arange(len(paragraphs)), [len(words) for words in paragraphs])
    if len(owners) < width:
        return joined, starts[:0], starts[:0], owners[:0]
    inside = owners[: len(owners) - width + 1] == owners[width - 1 :]
    return (
        joined,
        starts[: len(inside)][inside],
        ends[width - 1 :][inside],
        owners[: len(inside)][inside],
    )


def near_grams(paragraphs: list[list[bytes]], width: int = NEAR_WIDTH) -> Grams:
    """Return the n-grams of paragraphs by a polynomial hash: differences of one running sum."""
    joined, starts, ends, owners = _spans(paragraphs, width)
    with np.errstate(over="ignore"):
        terms = (np.frombuffer(joined, dtype="u1").astype("u8") + np.uint64(1)) * _powers(
            _BASE, len(joined)
        )
        sums = np.concatenate((np.zeros(1, "u8"), np.cumsum(terms, dtype="u8")))
        hashes = (sums[ends] - sums[starts]) * _powers(_INVERSE, len(joined) + 1)[starts]
        hashes = (hashes ^ (hashes >> np.uint64(32))) * _MIX
    return Grams(hashes >> np.uint64(32), owners)


def evaluation_grams(paragraphs: list[list[bytes]]) -> Grams:
    """Return the 13-grams of paragraphs of words as `evaluation-13grams.xz` has them."""
    joined, starts, ends, owners = _spans(paragraphs, EVALUATION_WIDTH)
    blake2b = hashlib.blake2b
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    digests = b"".join([blake2b(joined[start:end], digest_size=8).digest() for start, end in spans])
    return Grams(np.frombuffer(digests, dtype=">u8").astype("u8") >> np.uint64(24), owners)


def load_evaluation_grams(path: Path) -> np.ndarray:
    """Return the sorted hashes: differences, little-endian uint32 in four byte planes, in xz."""
    planes = np.frombuffer(lzma.decompress(path.read_bytes()), dtype="u1").reshape(4, -1)
    return np.cumsum(np.ascontiguousarray(planes.T).view("<u4").ravel().astype("u8"))


def find_shared(paragraphs: list[list[bytes]], known: np.ndarray) -> set[int]:
    """Return the numbers of the paragraphs with a 13-gram among the known, which are sorted."""
    grams = evaluation_grams(paragraphs)
    positions = np.minimum(np.searchsorted(known, grams.hashes), len(known) - 1)
    return set(grams.paragraphs[known[positions] == grams.hashes].tolist())


def normalised_hash(words: list[bytes]) -> bytes:
    """Return a hash of a paragraph that leaves case and punctuation out."""
    return hashlib.blake2b(b" ".join(words), digest_size=8).digest()


class Seen:
    """The paragraphs and n-grams of all text so far.

    The n-grams are places in a table of 2**bits: 200 million in 2**31 make one new gram in eleven
    look seen, which the share of one half allows for.
    """

    def __init__(self, bits: int = 31) -> None:
        self._shift = np.uint64(32 - bits)
        self._table = np.zeros(1 << bits, dtype=bool)
        self._exact: set[bytes] = set()
        self._held_out: set[bytes] = set()

    def add_exact(self, hashes: list[bytes]) -> None:
        """Count paragraphs as seen only where all their words are the same."""
        self._exact.update(hashes)

    def hold_out(self, hashes: list[bytes]) -> None:
        """Count whole documents as seen that have one of these paragraphs."""
        self._held_out.update(hashes)

    def add(self, exact: list[bytes], grams: Grams) -> None:
        """Count paragraphs and what is like them as seen."""
        self._exact.update(exact)
        self._table[grams.hashes >> self._shift] = True

    def keep_new(self, exact: list[bytes], grams: Grams) -> list[int]:
        """Return the numbers of a document's paragraphs that are new, and count them as seen."""
        if not self._held_out.isdisjoint(exact):
            return []
        hit = self._table[grams.hashes >> self._shift]
        if len(hit) >= MIN_GRAMS and hit.mean() >= SAME:
            return []
        total = np.bincount(grams.paragraphs, minlength=len(exact))
        known = np.bincount(grams.paragraphs[hit], minlength=len(exact))
        near = (total >= MIN_GRAMS) & (known >= SAME * total)
        kept = []
        for number, same in enumerate(exact):
            if not near[number] and same not in self._exact:
                self._exact.add(same)
                kept.append(number)
        self._table[(grams.hashes >> self._shift)[np.isin(grams.paragraphs, kept)]] = True
        return kept
