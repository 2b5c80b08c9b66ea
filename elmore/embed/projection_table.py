"""The gate inputs of a packed batch: a table with a row per word, and the rows that a chunk reads.

The input projection of the first LSTM layer depends on the word alone, so a word that recurs is
projected once. A table of all words may be too large, so only frequent ones stay in it. Where
`Device.projects_in_steps` says so, there is no table: the LSTMs read token vectors.

Shapes: S steps, B rows, N distinct words, n some of them, D width of one direction,
G = 4H gates.
"""

from itertools import compress, pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from elmore.embed.device import Array, Device, PackedInputs
from elmore.embed.runtime import Runtime
from elmore.embed.word_tables import MISSING


class DistinctWords(NamedTuple):
    """The distinct words of a batch and their token vectors; a word id is an index into both."""

    words: list[str]
    vectors: Float[Array, "N D"]

    def used_in(
        self, text: Int[np.ndarray, " T"], device: Device
    ) -> tuple["DistinctWords", Int[np.ndarray, " T"]]:
        """Return only the words that a text has, and the text as ids of these."""
        used = np.bincount(text, minlength=len(self.words)) > 0
        if used.all():
            return self, text
        words = list(compress(self.words, used.tolist()))
        (rows,) = device.put([used.nonzero()[0]])
        return DistinctWords(words, self.vectors[rows]), (np.cumsum(used) - 1)[text]


class ProjectionTable:
    """Gate inputs of the words of a batch.

    The most frequent words, as many as `DeviceLimits.projection_bytes` allows, have a row each for
    the whole batch. The last rows hold the other (rare) words of one chunk, which are projected
    when the chunk is run. All indices are computed beforehand, so that no chunk waits for a GPU.

    Args:
        runtime: The model with its caches.
        distinct: The distinct words that the chunks read, and no others.
        direction: `FORWARD` or `BACKWARD`.
        words: The id of the word that each row reads at each step.
        chunk: Steps of a chunk; the last one may be shorter.
    """

    def __init__(
        self,
        runtime: Runtime,
        distinct: DistinctWords,
        direction: int,
        words: Int[np.ndarray, "S B"],
        chunk: int,
    ) -> None:
        self._runtime, self._device, self._vectors = runtime, runtime.device, distinct.vectors
        self._cache = runtime.projections[direction]
        gates = 4 * runtime.config.lstm.cell_dim
        row_bytes = self._device.empty(1, gates).nbytes
        max_frequent = int(runtime.limits.projection_bytes / row_bytes)
        plan = _TablePlan.create(words, chunk, len(distinct.words), max_frequent)
        self._chunk = chunk
        self._num_frequent, num_rare = len(plan.frequent), max(map(len, plan.rare))
        self._table = self._device.empty(self._num_frequent + num_rare, gates)
        stops = np.cumsum([0, *map(len, plan.rare)]).tolist()
        self._frequent, rare, self._rows = self._device.put(
            [plan.frequent, np.concatenate(plan.rare), plan.rows]
        )
        self._rare = [rare[begin:end] for begin, end in pairwise(stops)]
        table = self._table[: self._num_frequent]
        if runtime.limits.looks_up_projections:
            frequent = [distinct.words[word_id] for word_id in plan.frequent.tolist()]
            self._cache(frequent, self._vectors_of_frequent, out=table)
        else:
            self._cache.project(self._vectors[self._frequent], out=table)

    def _vectors_of_frequent(self, at: list[int]) -> Float[Array, "n D"]:
        return self._vectors[self._frequent[self._runtime.put(np.array(at))]]

    def __call__(self, chunk: int) -> PackedInputs:
        """Return what a chunk reads; the next call overwrites it."""
        rare = self._rare[chunk]
        if len(rare):
            rows = slice(self._num_frequent, self._num_frequent + len(rare))
            self._cache.project(self._vectors[rare], out=self._table[rows])
        rows = self._rows[chunk * self._chunk : (chunk + 1) * self._chunk]
        return PackedInputs(self._table, rows, projected=True)


class _TablePlan(NamedTuple):
    """Which words a `ProjectionTable` holds, and which of its rows each step reads."""

    frequent: Int[np.ndarray, " n"]
    """Ids of the words that have a row for the whole batch."""
    rare: list[Int[np.ndarray, " n"]]
    """For each chunk, ids of its other words; their rows come after those of the frequent words."""
    rows: Int[np.ndarray, "S B"]
    """The row of the table that each row of the batch reads."""

    @classmethod
    def create(
        cls, words: Int[np.ndarray, "S B"], chunk: int, num_words: int, max_frequent: int
    ) -> "_TablePlan":
        num_chunks = -(-len(words) // chunk)
        if num_words <= max_frequent:  # every word has a row: its id
            return cls(np.arange(num_words), [np.arange(0)] * num_chunks, words)
        counts = np.bincount(words.reshape(-1), minlength=num_words)
        frequent = np.argsort(-counts, kind="stable")[:max_frequent]
        row_of = np.full(num_words, MISSING)
        row_of[frequent] = np.arange(len(frequent))
        rows = row_of[words]
        is_rare = rows == MISSING
        in_chunk = is_rare.nonzero()[0] // chunk
        # the distinct pairs of a chunk and a rare word in it, sorted, as one integer each
        distinct, inverse = np.unique(in_chunk * num_words + words[is_rare], return_inverse=True)
        begins = np.searchsorted(distinct, num_words * np.arange(num_chunks))
        rows[is_rare] = len(frequent) + inverse - begins[in_chunk]
        return cls(frequent, np.split(distinct % num_words, begins[1:]), rows)
