"""Caches of what depends on a word alone: its token vector, and its input projections.

There is no list of known words: a word that is not in a cache is computed like any other, and gets
the same bits. The caches are bounded (least recently used words are dropped first) and may be used
by several threads.

Shapes: N words, R rows of a table of width W, C characters, D width of one direction, G = 4H gates.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat

import numpy as np
from jaxtyping import Float, Int

from elmore.embed.device import Array, Device, Network
from elmore.text.characters import Alphabet, number_words

MISSING = -1
WIDTHS = (6, 9, 12, 16, 24)  # length buckets of words, in columns; longer words take all columns
_MAX_WORDS = 16384  # encoded at a time
_MAX_LETTERS = 100  # a longer word takes more memory than its vector, and hardly recurs


class LRUTable:
    """Map from words to the rows of an array that grows up to `capacity` rows of a width.

    When it is full, the least recently used words give up their rows.
    """

    def __init__(self, capacity: int, width: int, device: Device) -> None:
        self.capacity = capacity
        self.table = device.empty(0, width)
        self._device = device
        self._rows: dict[str, int] = {}
        self._words: list[str] = []  # of each row
        self._num_calls = 0
        self._last_use = np.zeros(0, np.int64)  # of each row of the table: the number of a call
        # The rows that had not been used for longest when they were sorted, and when that was.
        self._oldest, self._sorted_at = np.zeros(0, np.int64), 0

    def __len__(self) -> int:
        """Return the number of words."""
        return len(self._rows)

    def lookup(self, words: Sequence[str]) -> Int[np.ndarray, " N"]:
        """Return the row of each word, or `MISSING`, and mark the words as used."""
        rows = np.fromiter(map(self._rows.get, words, repeat(MISSING)), np.int64, len(words))
        self._num_calls += 1
        self._last_use[rows[rows != MISSING]] = self._num_calls
        return rows

    def insert(self, words: Sequence[str], values: Float[Array, "N W"]) -> None:
        """Insert distinct words that are not in the table, as many as it can hold."""
        used = len(self._rows)
        self.reserve(used + len(words))
        words = words[: len(self.table)]
        num_free = min(len(self.table) - used, len(words))
        evicted = self._least_recently_used(len(words) - num_free)
        rows = np.concatenate([np.arange(used, used + num_free), evicted])
        (index,) = self._device.put([rows])
        try:  # only here: the lines above may run out of memory, and change nothing
            self._oldest = self._oldest[len(evicted) :]
            self.table[index] = values[: len(words)]
            for row in evicted.tolist():
                del self._rows[self._words[row]]
            self._words += words[:num_free]
            for row, word in zip(evicted.tolist(), words[num_free:], strict=True):
                self._words[row] = word
            self._rows.update(zip(words, rows.tolist(), strict=True))
            self._num_calls += 1
            self._last_use[rows] = self._num_calls
        except BaseException:  # such as Ctrl-C: some rows may not be those of their words
            self._rows, self._words, self._oldest = {}, [], np.zeros(0, np.int64)
            raise

    def _least_recently_used(self, count: int) -> Int[np.ndarray, " n"]:
        """Return the rows of the words that have not been used for longest.

        To sort all of them at each call would be slow, so some more are kept for the next ones.
        """
        self._oldest = self._oldest[self._last_use[self._oldest] <= self._sorted_at]
        if len(self._oldest) < count:
            order = np.argsort(self._last_use[: len(self._rows)], kind="stable")
            self._oldest, self._sorted_at = order[: max(count, len(order) // 8)], self._num_calls
        return self._oldest[:count]

    def reserve(self, needed: int) -> None:
        """Enlarge the table for so many words, up to its capacity or to what a GPU has left."""
        old = self.table
        if needed <= len(old) or len(old) == self.capacity:
            return
        try:
            size = min(self.capacity, max(needed, 2 * len(old)))
            table = self._device.empty(size, old.shape[1])
        except self._device.out_of_memory:
            self.capacity = len(old)
            return
        table[: len(old)] = old
        # Before the table, which may not be longer; the rows after the words are not read.
        self._last_use = np.resize(self._last_use, size)
        self.table = table


class WordCache:
    """A thread-safe LRU cache of one vector per word; `block` words are computed at a time."""

    def __init__(self, megabytes: float, width: int, device: Device, block: int) -> None:
        self._block = block
        row_bytes = device.empty(1, width).nbytes
        self._lru = LRUTable(int(megabytes * 1e6 / row_bytes), width, device)
        self._device = device
        self._lock = threading.Lock()

    def gather(
        self,
        words: Sequence[str],
        compute: Callable[[list[int]], Float[Array, "n W"]],
        out: Float[Array, "N W"] | None = None,
    ) -> Float[Array, "N W"]:
        """Return a copy of the vectors of words, which may repeat.

        `compute` is called without the lock, with the positions in `words` of distinct words that
        are missing; it returns their vectors.
        """
        with self._lock:
            rows, table = self._lru.lookup(words), self._lru.table
            vectors = self._device.empty(len(rows), table.shape[1]) if out is None else out
            missing = (rows == MISSING).nonzero()[0]
            if len(missing) < len(rows):
                (index,) = self._device.put([np.maximum(rows, 0)])
                self._device.take(table, index, vectors)  # missing words are set below
            if not len(missing):
                return vectors
            distinct, word_ids = number_words([words[i] for i in missing.tolist()])
            self._lru.reserve(len(self._lru) + len(distinct))
        first_positions = missing[np.unique(word_ids, return_index=True)[1]].tolist()
        for begin in range(0, len(distinct), self._block):
            end = begin + self._block
            computed = compute(first_positions[begin:end])
            in_block = (word_ids >= begin) & (word_ids < end)
            targets, sources = missing[in_block], word_ids[in_block] - begin
            no_repeats = len(sources) == len(computed)  # then `sources` is 0, 1, 2, ...
            targets, sources = self._device.put([targets, sources])
            vectors[targets] = computed if no_repeats else computed[sources]
            self._insert(distinct[begin:end], computed)
        return vectors

    def _insert(self, words: list[str], values: Float[Array, "n W"]) -> None:
        with self._lock:
            absent = self._lru.lookup(words) == MISSING  # another thread may have inserted them
            short = np.array([len(word) <= _MAX_LETTERS for word in words])
            chosen = (absent & short).nonzero()[0]
            if len(chosen) < len(words):
                words = [words[i] for i in chosen.tolist()]
                values = values[self._device.put([chosen])[0]]
            self._lru.insert(words, values)


class TokenVectorCache:
    """The token layer (layer 0) of a model as a function of words.

    The bits of a word's vector do not depend on the words that are encoded with it. Where the
    network itself does not guarantee that, blocks have a fixed shape, filled up with words of the
    same block.
    """

    def __init__(self, network: Network, alphabet: Alphabet, *, megabytes: float = 256) -> None:
        self.alphabet = alphabet
        self._network, self._device = network, network.device
        self._fixed_shapes = network.fixed_shapes
        self._block = self._device.limits.cnn_block
        width = network.config.lstm.output_dim
        self._cache = WordCache(megabytes, width, self._device, block=_MAX_WORDS)

    def __call__(self, words: Sequence[str]) -> Float[Array, "N D"]:
        """Return the token vectors of words."""
        return self._cache.gather(words, lambda at: self._encode([words[i] for i in at]))

    def _encode(self, words: list[str]) -> Float[Array, "N D"]:
        characters, ids = self.alphabet.encode(words)
        config, size = self._network.config, self._block
        if self._fixed_shapes:
            width = config.characters.num_filters if config.characters else 1
            size = self._device.stable_rows(size, width)
        vectors = self._device.empty(len(words), config.lstm.output_dim)
        for rows, columns in self._length_buckets(characters, len(words)):
            for start in range(0, len(rows), size):
                block = rows[start : start + size]
                full = np.resize(block, size) if self._fixed_shapes else block  # repeats the block
                letters = None if characters is None else self._fit(characters[full], columns)
                word_ids = None if ids is None else self._device.put([ids[full]])[0]
                encoded = self._network.encode(letters, word_ids)
                vectors[self._device.put([block])[0]] = encoded[: len(block)]
        return vectors

    def _length_buckets(
        self, characters: Int[np.ndarray, "N C"] | None, num_words: int
    ) -> Iterator[tuple[Int[np.ndarray, " n"], int]]:
        """Yield the words of each length bucket, and its number of columns."""
        config = self._network.config.characters
        if characters is None or config is None:
            yield np.arange(num_words), 0
            return
        lengths = (characters != config.padding_id).sum(axis=1)
        widths = np.array(
            [*(w for w in WIDTHS if w < config.max_characters), config.max_characters]
        )
        columns = widths[np.searchsorted(widths, lengths)]
        if not self._fixed_shapes and num_words <= self._block:
            columns[:] = columns.max()  # one call with padding is quicker than one per bucket
        for width in np.unique(columns):
            yield (columns == width).nonzero()[0], int(width)

    def _fit(self, characters: Int[np.ndarray, "n C"], columns: int) -> Int[Array, "n c"]:
        """Cut or pad character ids to a number of columns, and copy them to the device."""
        config = self._network.config.characters
        assert config is not None
        fitted = np.full((len(characters), columns), config.padding_id, dtype=np.int64)
        shared = min(columns, characters.shape[1])
        fitted[:, :shared] = characters[:, :shared]
        return self._device.put([fitted])[0]


class ProjectionCache:
    """Gate inputs W_x x of words in the first LSTM layer of one direction.

    They depend on the word alone, and are a quarter of all the arithmetic of a biLM.
    """

    def __init__(self, network: Network, direction: int, *, megabytes: float) -> None:
        self._project = network.project[direction]
        self._fixed_shapes = network.fixed_shapes
        self._device = device = network.device
        self._num_gates = 4 * network.config.lstm.cell_dim
        self._block = device.limits.projection_block
        # Small blocks, whose memory the allocator reuses: fresh pages cost time.
        self._cache = WordCache(megabytes, self._num_gates, device, block=4 * self._block)

    def __call__(
        self,
        words: Sequence[str],
        vectors: Callable[[list[int]], Float[Array, "n D"]],
        out: Float[Array, "N G"] | None = None,
    ) -> Float[Array, "N G"]:
        """Return the gate inputs of words; `vectors` returns token vectors by position."""
        return self._cache.gather(words, lambda at: self.project(vectors(at)), out)

    def project(
        self, vectors: Float[Array, "N D"], out: Float[Array, "N G"] | None = None
    ) -> Float[Array, "N G"]:
        """Return the gate inputs of token vectors, in `out` if it is given."""
        if out is None and not self._fixed_shapes:
            return self._project(vectors[None])[0]
        gate_inputs = self._device.empty(len(vectors), self._num_gates) if out is None else out
        if not self._fixed_shapes:
            gate_inputs[:] = self._project(vectors[None])[0]
            return gate_inputs
        for begin in range(0, len(vectors), self._block):
            block = full = vectors[begin : begin + self._block]
            if len(block) < self._block:
                (rows,) = self._device.put([np.arange(self._block) % len(block)])
                full = block[rows]
            gate_inputs[begin : begin + len(block)] = self._project(full[None])[0, : len(block)]
        return gate_inputs
