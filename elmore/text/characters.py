"""Words to character ids: the byte alphabet of ELMo, the lexicon of ELMoForManyLangs.

A batch of sentences becomes a `TokenIds`: the ids of each *distinct* word once, and an index that
says which word stands where. So no word is spelled, or run through a convolution, twice.

Shapes: N distinct words, C characters, B sentences, T tokens (sentence boundaries included).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Int

from elmore.errors import DataError
from elmore.text.vocabulary import Vocabulary

ABSENT = -1  # in an index: no token here, the sentence is over


class TokenIds(NamedTuple):
    """A batch of sentences as ids: `characters[index[b, t]]` spells token t of sentence b."""

    index: Int[np.ndarray, "B T"]
    characters: Int[np.ndarray, "N C"] | None
    """Columns may stop after the longest word: what is missing is padding."""
    words: Int[np.ndarray, " N"] | None
    """Only for models that embed words as well as, or instead of, their characters."""


class Alphabet(Protocol):
    """How a model spells words. `encode` takes distinct words, the boundaries among them."""

    begin: str
    end: str

    def encode(
        self, words: Sequence[str]
    ) -> tuple[Int[np.ndarray, "N C"] | None, Int[np.ndarray, " N"] | None]:
        """Give the character ids and the word ids, each None if the model has no use for it."""
        ...


def encode_batch(alphabet: Alphabet, sentences: Sequence[Sequence[str]]) -> TokenIds:
    """Number the distinct words of the sentences, put boundaries around each, and spell them."""
    numbers: dict[str, int] = {alphabet.begin: 0, alphabet.end: 1}
    length = 2 + max((len(sentence) for sentence in sentences), default=0)
    index = np.full((len(sentences), length), ABSENT, dtype=np.int64)
    for row, sentence in zip(index, sentences, strict=True):
        check_tokens(sentence)
        row[0] = 0
        row[1 : len(sentence) + 1] = [numbers.setdefault(word, len(numbers)) for word in sentence]
        row[len(sentence) + 1] = 1
    return TokenIds(index, *alphabet.encode(list(numbers)))


def check_tokens(sentence: Sequence[str]) -> None:
    """Refuse what is no list of strings; a lone string would be read letter by letter."""
    if isinstance(sentence, str | bytes):
        raise DataError(f"expected a list of tokens, found {sentence[:40]!r}")
    try:
        "".join(sentence)  # the quickest way to look at them all
    except TypeError:
        for word in sentence:
            if not isinstance(word, str):
                raise DataError(f"expected tokens that are strings, found {word!r}") from None
        raise


@dataclass(frozen=True)
class ByteAlphabet:
    """ELMo's own alphabet: a word is its UTF-8 bytes between two marks, cut to a fixed width.

    Ids are those of training (0 to 260). Published code adds one at prediction to make room for a
    zero row that stands for absent tokens; here the index says what is absent, so nothing shifts.
    """

    max_characters: int = 50

    begin = "<S>"
    end = "</S>"
    num_ids = 261
    begin_sentence, end_sentence, begin_word, end_word, padding = range(256, 261)

    def spell(self, word: str) -> list[int]:
        """Ids of one word without padding; `<S>` and `</S>` are single marks, as in AllenNLP."""
        if word == self.begin:
            payload = [self.begin_sentence]
        elif word == self.end:
            payload = [self.end_sentence]
        else:  # the cut is on bytes, and may fall inside a character: that is how they trained
            payload = list(word.encode("utf-8", "ignore")[: self.max_characters - 2])
        return [self.begin_word, *payload, self.end_word]

    def encode(self, words: Sequence[str]) -> tuple[Int[np.ndarray, "N C"], None]:
        """Spell each word, padded to the longest of them."""
        return _pad([self.spell(word) for word in words], self.padding), None


@dataclass(frozen=True)
class WordAlphabet:
    """For models without characters: a word is a row of the vocabulary, or its `<UNK>`."""

    vocabulary: Vocabulary

    begin = "<S>"
    end = "</S>"

    def encode(self, words: Sequence[str]) -> tuple[None, Int[np.ndarray, " N"]]:
        """Look each word up."""
        return None, self.vocabulary.ids(words)


@dataclass(frozen=True)
class Lexicon:
    """ELMoForManyLangs: characters are code points listed by the model, words have ids too."""

    characters: tuple[str, ...] | None
    """The character of each id, marks such as `<pad>` included; None for a model without."""
    vocabulary: Vocabulary | None
    """The words of the embedding table; None for a model that sees characters alone."""
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
        """Cut each word to the width of the table, then look up its characters and the word."""
        cut = [word[: self.max_characters - 2] for word in words]
        word_ids = self.vocabulary.ids(cut) if self.vocabulary else None
        if self.characters is None:
            return None, word_ids
        number = {character: i for i, character in enumerate(self.characters)}
        # Its authors open a word with the id of <eow> and close it with that of <bow>, in training
        # and after: the weights know nothing else.
        first, last, unknown = number["<eow>"], number["<bow>"], number["<oov>"]
        spelled = [
            [first, *(number.get(c, unknown) for c in self._units(word)), last] for word in cut
        ]
        return _pad(spelled, number["<pad>"]), word_ids

    def _units(self, word: str) -> Sequence[str]:
        return [word] if word in (self.begin, self.end) else word


def _pad(rows: list[list[int]], padding: int) -> Int[np.ndarray, "N C"]:
    width = max(map(len, rows), default=0)
    return np.array([row + [padding] * (width - len(row)) for row in rows], dtype=np.int64)
