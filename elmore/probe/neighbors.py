"""The uses of words in a text that are nearest to a use in another sentence.

An index holds every token of a text with its sentence (`use_store.py`), and is searched exactly
(`use_search.py`) or, where it is large, through faiss (`use_faiss.py`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Self

import numpy as np
from jaxtyping import Float, Int

from elmore.embed.embedder import Embedder
from elmore.embed.outputs import LayerChoice, parse_layers
from elmore.errors import ConfigError, DataError
from elmore.probe import use_search, use_store, use_writer
from elmore.probe.cosine import unit
from elmore.probe.use_columns import Columns
from elmore.probe.use_faiss import ManyUses
from elmore.probe.use_search import Nearest
from elmore.probe.use_text import Reading
from elmore.probe.use_writer import Progress
from elmore.text.characters import check_tokens


class Neighbor(NamedTuple):
    """A use that was found."""

    word: str
    tokens: list[str]
    """Its sentence."""
    position: int
    similarity: float
    """The cosine of its vector with that of the query."""
    line: int
    """The line of the text that its sentence stands on, from 0."""


class UseIndex:
    """Every use of every word in a text, in a folder that stays on the disk.

    Several threads may search at once. What others append later is seen by those who open it then.
    """

    def __init__(self, folder: Path, embedder: Embedder) -> None:
        """Use `open`, `build` or `append`."""
        self.folder = folder
        self.embedder = embedder
        self._open()

    def _open(self) -> None:
        use_store.refuse_another_model(self.folder, use_store.read(self.folder), self.embedder)
        self._columns = Columns(self.folder)
        self._many: dict[str, ManyUses | None] = {}

    @classmethod
    def open(cls, folder: str | Path, embedder: Embedder) -> Self:
        """Open an index; one of another model, or one that is cut short, is refused."""
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
        progress: Progress = lambda fraction, sentences, uses: None,
    ) -> Self:
        """Give the index of a text: built now, gone on with after a kill, or opened if it is whole.

        `layers` are those to keep: "top" (also when nothing is said), "average", numbers, "all".
        Lines are split into sentences; when `tokenized`, a line is one, its tokens between spaces.
        Without a folder the index is kept in the user's cache.
        """
        reading = Reading(tokenized=tokenized, column=column, errors=errors)
        place = use_writer.build(
            None if folder is None else Path(folder),
            embedder,
            [str(name) for name in files],
            layers=layers,
            reading=reading,
            progress=progress,
        )
        return cls(place, embedder)

    def append(
        self,
        files: Sequence[str | Path],
        *,
        tokenized: bool = False,
        column: str = "text",
        errors: Literal["strict", "replace"] = "strict",
        progress: Progress = lambda fraction, sentences, uses: None,
    ) -> None:
        """Add the uses of another text; one that is in the index already is not added again."""
        reading = Reading(tokenized=tokenized, column=column, errors=errors)
        use_writer.build(
            self.folder,
            self.embedder,
            [str(name) for name in files],
            reading=reading,
            append=True,
            progress=progress,
        )
        self._open()

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that are kept: numbers, or average."""
        return self._columns.manifest.layers

    @property
    def layer(self) -> LayerChoice:
        """The layer that is searched when nothing is said."""
        return parse_layers(self._kept(None))

    @property
    def num_sentences(self) -> int:
        """How many sentences there are."""
        return self._columns.manifest.num_sentences

    def __contains__(self, word: str) -> bool:
        """Whether there is a use of this word, as it is written."""
        return word in self._columns.numbers

    def __len__(self) -> int:
        """How many uses there are."""
        return self._columns.manifest.num_uses

    def search(
        self,
        tokens: list[str],
        position: int,
        k: int = 10,
        *,
        word: str | None = None,
        layer: str | int | None = None,
    ) -> list[Neighbor]:
        """Give the k uses nearest to the word at a position of a sentence, or as many as there are.

        Uses in the same sentence are left out, should the text hold it. `word` asks for uses of
        that word alone; `layer` is one of those kept: the top when nothing is said, or where that
        is not kept the last of them.
        """
        check_tokens(tokens)
        if not 0 <= position < len(tokens):
            raise DataError(
                f"position {position} is not in a sentence of {len(tokens)} tokens, which are "
                f"counted from 0"
            )
        kept = self._kept(layer)
        (embedded,) = self.embedder.embed([tokens], layers=parse_layers(kept))
        return self.search_vector(embedded.vectors[position], tokens, k, word=word, layer=kept)

    def search_vector(
        self,
        vector: Float[np.ndarray, " D"],
        tokens: list[str],
        k: int = 10,
        *,
        word: str | None = None,
        layer: str | int | None = None,
    ) -> list[Neighbor]:
        """Search for who has the vector already: that of a word among these tokens."""
        without = self._columns.rows_of(tokens)
        found = self.nearest(vector, k, word=word, layer=layer, without=without)
        return [
            self.use(int(row), float(similarity)) for row, similarity in zip(*found, strict=True)
        ]

    def nearest(
        self,
        vector: Float[np.ndarray, " D"],
        k: int,
        *,
        word: str | None = None,
        layer: str | int | None = None,
        without: Int[np.ndarray, " E"] | None = None,
        exact: bool = False,
    ) -> Nearest:
        """Give the numbers of the k uses nearest to a vector, without some; `exact`: no faiss."""
        if k < 1:
            raise ConfigError(f"k={k}: at least one neighbour must be asked for")
        kept = self._kept(layer)
        vectors, query = self._columns.vectors(kept), unit(vector)
        without = np.zeros(0, np.int64) if without is None else without
        if word is not None:
            among = np.flatnonzero(self._columns.words == self._number(word))
            return use_search.search(vectors, query, k, among=among, without=without)
        if kept not in self._many:
            self._many[kept] = ManyUses.open(self._columns, kept)
        many = self._many[kept]
        if many is None or exact:
            return use_search.search(vectors, query, k, without=without)
        return many.search(vectors, query, k, without=without)

    def use(self, row: int, similarity: float = 1.0) -> Neighbor:
        """Give a use by its number, from 0 in the order of the text."""
        sentence = self._columns.sentence_of(row)
        position = row - sentence.first
        word = sentence.tokens[position]
        return Neighbor(word, sentence.tokens, position, similarity, sentence.line)

    def _kept(self, layer: str | int | None) -> str:
        top = str(self.embedder.num_layers - 1)
        if layer is None:
            return top if top in self.layers else self.layers[-1]
        name = top if layer == "top" else str(layer)
        if name not in self.layers:
            raise ConfigError(
                f"layer {layer!r}: {self.folder} keeps {', '.join(self.layers)}; another has to be "
                "kept when an index is built"
            )
        return name

    def _number(self, word: str) -> int:
        number = self._columns.numbers.get(word)
        if number is None:
            alike = [one for one in self._columns.types if one.lower() == word.lower()]
            hint = f"; there is {', '.join(map(repr, alike))}" if alike else ""
            raise DataError(
                f"{word!r}: {self.folder} holds no use of this word among its {len(self)}{hint}"
            )
        return number
