"""Nearest-neighbour search over every word occurrence of a text.

An index stores every token of a text with its sentence (`storage.py`). It is searched exactly
(`exact_search.py`) or, when it is large, through faiss (`faiss_search.py`).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Self

import numpy as np
from jaxtyping import Float, Int

from elmore.embed.embedder import Embedder
from elmore.embed.outputs import LayerChoice, parse_layers
from elmore.errors import ConfigError, DataError
from elmore.probe.cosine import normalize
from elmore.probe.neighbors import exact_search, storage, writer
from elmore.probe.neighbors.columns import Columns
from elmore.probe.neighbors.exact_search import Nearest
from elmore.probe.neighbors.faiss_search import FaissLayer
from elmore.probe.neighbors.source_text import TextOptions
from elmore.probe.neighbors.writer import Progress
from elmore.text.characters import check_tokens


class Neighbor(NamedTuple):
    """One search result: an occurrence of a word."""

    word: str
    tokens: list[str]
    """The sentence it occurs in."""
    position: int
    similarity: float
    """Cosine of its vector and the query vector."""
    line: int
    """Line of the text on which the sentence begins, from 0."""


class OccurrenceIndex:
    """Every occurrence of every word of a text, in a folder on disk.

    Several threads may search at once. Text appended by another process becomes visible when the
    index is opened again.
    """

    def __init__(self, folder: Path, embedder: Embedder) -> None:
        """Call `open`, `build` or `append` instead."""
        self.folder = folder
        self.embedder = embedder
        self._open()

    def _open(self) -> None:
        storage.check_same_model(self.folder, storage.read_manifest(self.folder), self.embedder)
        self._columns = Columns(self.folder)
        self._faiss_layers: dict[str, FaissLayer | None] = {}

    @classmethod
    def open(cls, folder: str | Path, embedder: Embedder) -> Self:
        """Open an index.

        Raises:
            DataError: the index belongs to another model or precision, is unfinished or is
                damaged.
        """
        return cls(Path(folder), embedder)

    @classmethod
    def build(
        cls,
        folder: str | Path | None,
        embedder: Embedder,
        files: Sequence[str | Path],
        *,
        layers: Sequence[str] | None = None,
        tokenized: bool = False,
        column: str = "text",
        errors: Literal["strict", "replace"] = "strict",
        progress: Progress = lambda fraction, sentences, occurrences: None,
    ) -> Self:
        """Build the index of a text, resume an interrupted build, or open a finished one.

        Args:
            folder: where to store it; None stores it in the user's cache.
            embedder: model whose vectors are stored, in its precision; needed again to search.
            files: text, .jsonl, .csv, .tsv or .parquet, also compressed.
            layers: layers to store: "top", "average", numbers, "all", "cloze" or "whitened".
                Default: "whitened", or "top" for a model without a whitening.
            tokenized: each line is one sentence, with spaces between its tokens. Otherwise lines
                are split into sentences and tokenized.
            column: column of tables that holds the text.
            errors: what to do with invalid UTF-8.
            progress: called with the fraction read, and the sentences and occurrences stored.

        Returns:
            The open index.

        Raises:
            DataError: the folder holds something else, or a file cannot be read.
        """
        options = TextOptions(tokenized=tokenized, column=column, errors=errors)
        target = None if folder is None else Path(folder)
        names = [str(name) for name in files]
        built = writer.build_index(
            target, embedder, names, layers=layers, options=options, progress=progress
        )
        return cls(built, embedder)

    def append(
        self,
        files: Sequence[str | Path],
        *,
        tokenized: bool = False,
        column: str = "text",
        errors: Literal["strict", "replace"] = "strict",
        progress: Progress = lambda fraction, sentences, occurrences: None,
    ) -> None:
        """Add the occurrences of another text; a text already in the index is not added again."""
        options = TextOptions(tokenized=tokenized, column=column, errors=errors)
        names = [str(name) for name in files]
        writer.build_index(
            self.folder, self.embedder, names, options=options, append=True, progress=progress
        )
        self._open()

    @property
    def layers(self) -> tuple[str, ...]:
        """The stored layers: numbers, average, cloze or whitened."""
        return self._columns.manifest.layers

    @property
    def layer(self) -> LayerChoice:
        """The layer that is searched by default."""
        return parse_layers(self._resolve_layer(None))

    @property
    def search_cost(self) -> int:
        """The cost of a search in the default layer, in exact comparisons with an occurrence."""
        faiss_layer = self._faiss_layer(self._resolve_layer(None))
        return len(self) if faiss_layer is None else faiss_layer.search_cost(len(self))

    @property
    def num_sentences(self) -> int:
        """Number of sentences."""
        return self._columns.manifest.num_sentences

    @property
    def text_digests(self) -> tuple[str, ...]:
        """A digest of each text: of its content and how it was read."""
        return tuple(text.digest for text in self._columns.manifest.texts)

    def count_words(self) -> dict[str, int]:
        """Return how often each word form occurs; case matters."""
        counts = np.bincount(self._columns.words, minlength=len(self._columns.types))
        return dict(zip(self._columns.types, counts.tolist(), strict=True))

    def rows_of_words(self, words: Iterable[str]) -> Int[np.ndarray, " K"]:
        """Return the rows of all occurrences of these word forms, in text order."""
        word_ids = [self._word_id(word) for word in words]
        return np.flatnonzero(np.isin(self._columns.words, word_ids))

    def vectors(
        self, rows: Int[np.ndarray, " K"], layer: str | int | None = None
    ) -> Float[np.ndarray, "K D"]:
        """Return the unit vectors of occurrences in a stored layer."""
        return self._columns.vectors(self._resolve_layer(layer))[rows].astype(np.float32)

    def __contains__(self, word: str) -> bool:
        """Return whether this word form occurs in the text; case matters."""
        return word in self._columns.word_ids

    def __len__(self) -> int:
        """Return the number of occurrences."""
        return self._columns.manifest.num_occurrences

    def search(
        self,
        tokens: list[str],
        position: int,
        k: int = 10,
        *,
        word: str | None = None,
        layer: str | int | None = None,
    ) -> list[Neighbor]:
        """Return the k occurrences nearest to a word in a sentence, the nearest first.

        Occurrences in an identical sentence of the text are excluded.

        Args:
            tokens: the query sentence.
            position: which token is the query, from 0.
            k: number of results; fewer if the index holds fewer.
            word: restrict the results to this word.
            layer: a stored layer. Default: the whitening, the top layer, or the last one stored.

        Raises:
            DataError: the position is outside the sentence, or `word` does not occur.
            ConfigError: the layer is not stored, or k is below 1.
        """
        check_tokens(tokens)
        if not 0 <= position < len(tokens):
            raise DataError(
                f"position {position} is not in a sentence of {len(tokens)} tokens, which are "
                f"counted from 0"
            )
        stored = self._resolve_layer(layer)
        (embedded,) = self.embedder.embed([tokens], layers=parse_layers(stored))
        return self.search_vector(embedded.vectors[position], tokens, k, word=word, layer=stored)

    def search_vector(
        self,
        vector: Float[np.ndarray, " D"],
        tokens: list[str],
        k: int = 10,
        *,
        word: str | None = None,
        layer: str | int | None = None,
    ) -> list[Neighbor]:
        """Search with a vector that is known already: that of a word in the sentence `tokens`."""
        exclude = self._columns.rows_of(tokens)
        result = self.nearest_rows(vector, k, word=word, layer=layer, exclude=exclude)
        return [
            self.occurrence(int(row), float(similarity))
            for row, similarity in zip(*result, strict=True)
        ]

    def nearest_rows(
        self,
        vector: Float[np.ndarray, " D"],
        k: int,
        *,
        word: str | None = None,
        layer: str | int | None = None,
        exclude: Int[np.ndarray, " E"] | None = None,
        exact: bool = False,
    ) -> Nearest:
        """Return the rows of the k nearest occurrences; `exact` bypasses faiss."""
        if k < 1:
            raise ConfigError(f"k={k}: expected 1 or more neighbours")
        stored = self._resolve_layer(layer)
        vectors, query = self._columns.vectors(stored), normalize(vector)
        exclude = np.zeros(0, np.int64) if exclude is None else exclude
        if word is not None:
            among = np.flatnonzero(self._columns.words == self._word_id(word))
            return exact_search.search(vectors, query, k, among=among, exclude=exclude)
        faiss_layer = self._faiss_layer(stored)
        if faiss_layer is None or exact:
            return exact_search.search(vectors, query, k, exclude=exclude)
        return faiss_layer.search(vectors, query, k, exclude=exclude)

    def _faiss_layer(self, stored: str) -> FaissLayer | None:
        if stored not in self._faiss_layers:
            self._faiss_layers[stored] = FaissLayer.open(self._columns, stored)
        return self._faiss_layers[stored]

    def occurrence(self, row: int, similarity: float = 1.0) -> Neighbor:
        """Return an occurrence by its row, from 0 in text order."""
        sentence = self._columns.sentence_of(row)
        position = row - sentence.first_row
        word = sentence.tokens[position]
        return Neighbor(word, sentence.tokens, position, similarity, sentence.line)

    def _resolve_layer(self, layer: str | int | None) -> str:
        top = str(self.embedder.num_layers - 1)
        if layer is None:
            best = [name for name in ("whitened", top) if name in self.layers]
            return best[0] if best else self.layers[-1]
        name = top if layer == "top" else str(layer)
        if name not in self.layers:
            raise ConfigError(
                f"layer {layer!r}: {self.folder} stores {', '.join(self.layers)}; build another "
                f"index: elmore neighbors MODEL TEXT --layers {name} --index OTHER_FOLDER"
            )
        return name

    def _word_id(self, word: str) -> int:
        word_id = self._columns.word_ids.get(word)
        if word_id is None:
            variants = [one for one in self._columns.types if one.lower() == word.lower()]
            hint = f"; there is {', '.join(map(repr, variants))}" if variants else ""
            raise DataError(
                f"{word!r}: does not occur among the {len(self)} occurrences of {self.folder}{hint}"
            )
        return word_id
