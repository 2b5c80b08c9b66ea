"""Convert words to rows of `input_ids` and back.

A row is the word's id in the word table, if the model has one, then its character ids: all shifted
by one, with 0 as padding.

Shapes: N words, C ids per word.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from elmore.errors import ConfigError
from elmore.text.characters import Alphabet, ByteAlphabet, Lexicon, WordAlphabet
from elmore.text.vocabulary import Vocabulary


def build_alphabet(
    kind: str, letters: Sequence[str] | None, width: int, vocabulary: Vocabulary | None
) -> Alphabet:
    """Return the alphabet of a tokenizer.

    Args:
        kind: "bytes", "words" or "lexicon".
        letters: The characters of a lexicon.
        width: Maximum number of ids per word.
        vocabulary: The words, for kinds "words" and "lexicon".

    Raises:
        ConfigError: The kind is unknown, or lacks its characters or words.
    """
    if kind == "bytes":
        return ByteAlphabet(width)
    if kind == "words" and vocabulary is not None:
        return WordAlphabet(vocabulary)
    if kind == "lexicon" and (letters or vocabulary):
        return Lexicon(tuple(letters) if letters else None, vocabulary, width)
    raise ConfigError(
        f"kind {kind!r} with {'no' if vocabulary is None else 'a'} vocabulary.txt: expected "
        "'bytes', 'words' with a vocabulary, or 'lexicon' with characters or a vocabulary"
    )


def num_columns(alphabet: Alphabet) -> int:
    """Return C, the number of ids per word.

    Args:
        alphabet: The alphabet of the model.
    """
    return _num_characters(alphabet) + (_vocabulary(alphabet) is not None)


def encode_words(alphabet: Alphabet, words: Sequence[str]) -> Int[np.ndarray, "N C"]:
    """Return one row of ids per word.

    Args:
        alphabet: The alphabet of the model.
        words: The words.
    """
    rows = np.zeros((len(words), num_columns(alphabet)), dtype=np.int64)
    if not words:
        return rows
    letters, numbers = alphabet.encode(words)
    if numbers is not None:
        rows[:, 0] = numbers + 1
    if letters is not None:
        start = int(numbers is not None)
        ids = np.where(letters == _padding(alphabet), 0, letters + 1)
        rows[:, start : start + ids.shape[1]] = ids
    return rows


def boundary_ids(alphabet: Alphabet) -> list[list[int]]:
    """Return the rows of `<S>` and `</S>`, without padding.

    Args:
        alphabet: The alphabet of the model.
    """
    marks = encode_words(alphabet, [alphabet.begin, alphabet.end])
    return [row[: int(row.nonzero()[0].max()) + 1].tolist() for row in marks]


def decode_word(alphabet: Alphabet, row: Sequence[int]) -> str:
    """Return the word of a row; truncated and unknown characters are lost.

    Args:
        alphabet: The alphabet of the model.
        row: The ids of the word.
    """
    ids = [id - 1 for id in row if id > 0]
    vocabulary = _vocabulary(alphabet)
    if isinstance(alphabet, ByteAlphabet):
        return bytes(id for id in ids if id < 256).decode("utf-8", "replace")
    if isinstance(alphabet, Lexicon) and alphabet.characters:
        letters = [alphabet.characters[id] for id in ids[int(vocabulary is not None) :]]
        return "".join(letters[1:-1])
    return vocabulary.words[ids[0]] if vocabulary and ids else ""


def _num_characters(alphabet: Alphabet) -> int:
    spells = isinstance(alphabet, ByteAlphabet) or (
        isinstance(alphabet, Lexicon) and alphabet.characters is not None
    )
    return getattr(alphabet, "max_characters", 0) if spells else 0


def _padding(alphabet: Alphabet) -> int:
    if isinstance(alphabet, Lexicon) and alphabet.characters:
        return alphabet.characters.index("<pad>")
    return ByteAlphabet.padding


def _vocabulary(alphabet: Alphabet) -> Vocabulary | None:
    return getattr(alphabet, "vocabulary", None)
