"""Encode words as character ids: the byte alphabet of ELMo, the lexicon of ELMoForManyLangs.

A batch of sentences becomes a `TokenIds`: the ids of each *distinct* word, and an index from
positions to words. So no word is encoded, or run through the character CNN, twice.

Shapes: N distinct words, C characters, B sentences, T tokens (sentence boundaries included).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Int

from elmore.errors import DataError
from elmore.text.vocabulary import Vocabulary

NO_TOKEN = -1  # in an index: padding after the end of a sentence


class TokenIds(NamedTuple):
    """A batch of sentences: `characters[index[b, t]]` are the ids of token t of sentence b."""

    index: Int[np.ndarray, "B T"]
    characters: Int[np.ndarray, "N C"] | None
    """Columns may end after the longest word; the rest is padding."""
    words: Int[np.ndarray, " N"] | None
    """Only for models with word embeddings."""


class Alphabet(Protocol):
    """How a model encodes words; `encode` takes distinct words, including the boundaries."""

    begin: str
    end: str

    def encode(
        self, words: Sequence[str]
    ) -> tuple[Int[np.ndarray, "N C"] | None, Int[np.ndarray, " N"] | None]:
        """Return the character ids and the word ids, each None if the model does not use it."""
        ...


def encode_batch(alphabet: Alphabet, sentences: Sequence[Sequence[str]]) -> TokenIds:
    """Add boundaries to the sentences, and encode their distinct words."""
    for sentence in sentences:
        check_tokens(sentence)
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    words, numbers = number_words([alphabet.begin, alphabet.end, *chain.from_iterable(sentences)])
    index = np.full((len(sentences), lengths.max(initial=0) + 2), NO_TOKEN, dtype=np.int64)
    column = np.arange(index.shape[1])
    index[:, 0] = 0
    index[(column > 0) & (column <= lengths[:, None])] = numbers[2:]
    index[np.arange(len(sentences)), lengths + 1] = 1
    return TokenIds(index, *alphabet.encode(words))


def number_words(words: Sequence[str]) -> tuple[list[str], Int[np.ndarray, " T"]]:
    """Return the distinct words in order of appearance, and the number of each word in them."""
    numbers: defaultdict[str, int] = defaultdict(count().__next__)
    numbered = np.fromiter(map(numbers.__getitem__, words), np.int64, len(words))
    return list(numbers), numbered


def check_tokens(sentence: Sequence[str]) -> None:
    """Raise DataError unless a sentence is a list of strings, such as for a single string."""
    if isinstance(sentence, str | bytes):
        raise DataError(f"expected a list of tokens, found {sentence[:40]!r}")
    try:
        "".join(sentence)  # the fastest way to check them all
    except TypeError:
        for word in sentence:
            if not isinstance(word, str):
                raise DataError(f"expected tokens that are strings, found {word!r}") from None
        raise


@dataclass(frozen=True)
class ByteAlphabet:
    """ELMo's alphabet: the UTF-8 bytes of a word between two marks, truncated to a fixed width.

    Ids are those of training (0 to 260). Published code adds one at prediction to have an id for
    padding tokens; here the index marks padding, so ids are not shifted.
    """

    max_characters: int = 50

    begin = "<S>"
    end = "</S>"
    num_ids = 261
    begin_sentence, end_sentence, begin_word, end_word, padding = range(256, 261)

    def encode_word(self, word: str) -> list[int]:
        """Return the ids of a word, without padding."""
        return self.encode([word])[0][0].tolist()

    def encode(self, words: Sequence[str]) -> tuple[Int[np.ndarray, "N C"], None]:
        """Encode each word, padded to the longest of them; `<S>` and `</S>` are single ids."""
        marks = {self.begin: self.begin_sentence, self.end: self.end_sentence}
        marked = {row: marks[word] for row, word in enumerate(words) if word in marks}
        # A cut may fall inside a character, as in training.
        spelled = [word.encode("utf-8", "ignore")[: self.max_characters - 2] for word in words]
        for row in marked:
            spelled[row] = b" "
        lengths = np.fromiter(map(len, spelled), np.int64, len(words))
        column = np.arange(lengths.max(initial=0) + 2)
        ids = np.full((len(words), len(column)), self.padding, dtype=np.int64)
        ids[:, 0] = self.begin_word
        ids[(column > 0) & (column <= lengths[:, None])] = np.frombuffer(b"".join(spelled), "u1")
        ids[np.arange(len(words)), lengths + 1] = self.end_word
        for row, mark in marked.items():
            ids[row, 1] = mark
        return ids, None


@dataclass(frozen=True)
class WordAlphabet:
    """For models without characters: a word is its id in the vocabulary."""

    vocabulary: Vocabulary

    begin = "<S>"
    end = "</S>"

    def encode(self, words: Sequence[str]) -> tuple[None, Int[np.ndarray, " N"]]:
        """Look up each word."""
        return None, self.vocabulary.ids(words)


@dataclass(frozen=True)
class Lexicon:
    """The alphabet of ELMoForManyLangs: listed code points, and word ids."""

    characters: tuple[str, ...] | None
    """The character of each id, including marks such as `<pad>`; None without characters."""
    vocabulary: Vocabulary | None
    """The words of the embedding table; None without word embeddings."""
    max_characters: int = 50

    begin = "<bos>"
    end = "<eos>"
    marks = ("<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>")

    def __post_init__(self) -> None:
        known = self.characters
        missing = [] if known is None else [mark for mark in self.marks if mark not in known]
        if missing:
            raise DataError(f"the character lexicon has no {missing[0]!r}")

    def encode(
        self, words: Sequence[str]
    ) -> tuple[Int[np.ndarray, "N C"] | None, Int[np.ndarray, " N"] | None]:
        """Truncate each word to the maximum width, then look up its characters and the word."""
        truncated = [word[: self.max_characters - 2] for word in words]
        word_ids = self.vocabulary.ids(truncated) if self.vocabulary else None
        if self.characters is None:
            return None, word_ids
        number = {character: i for i, character in enumerate(self.characters)}
        # The published models begin a word with the id of <eow> and end it with that of <bow>, in
        # training and in use.
        first, last, unknown = number["<eow>"], number["<bow>"], number["<oov>"]
        spelled = [
            [first, *(number.get(c, unknown) for c in self._symbols(word)), last]
            for word in truncated
        ]
        return _pad(spelled, number["<pad>"]), word_ids

    def _symbols(self, word: str) -> Sequence[str]:
        return [word] if word in (self.begin, self.end) else word


def _pad(rows: list[list[int]], padding: int) -> Int[np.ndarray, "N C"]:
    width = max(map(len, rows), default=0)
    return np.array([row + [padding] * (width - len(row)) for row in rows], dtype=np.int64)
