"""Words to the rows of ids that `input_ids` holds, and back.

A row has the word's place in the word table first, where the model has one, then its letters: all
one above the ids of training, and 0 after the last.

Shapes: N words, C ids per word.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from elmore.errors import ConfigError
from elmore.text.characters import Alphabet, ByteAlphabet, Lexicon, WordAlphabet
from elmore.text.vocabulary import Vocabulary


def build(
    kind: str, letters: Sequence[str] | None, width: int, vocabulary: Vocabulary | None
) -> Alphabet:
    """Make the alphabet of a tokenizer: "bytes", "words" or "lexicon"."""
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
    """Say how wide a row is."""
    return _num_letters(alphabet) + (_vocabulary(alphabet) is not None)


def rows(alphabet: Alphabet, words: Sequence[str]) -> Int[np.ndarray, "N C"]:
    """Spell words."""
    found = np.zeros((len(words), num_columns(alphabet)), dtype=np.int64)
    if not words:
        return found
    letters, numbers = alphabet.encode(words)
    if numbers is not None:
        found[:, 0] = numbers + 1
    if letters is not None:
        start = int(numbers is not None)
        ids = np.where(letters == _padding(alphabet), 0, letters + 1)
        found[:, start : start + ids.shape[1]] = ids
    return found


def boundaries(alphabet: Alphabet) -> list[list[int]]:
    """Give the rows of the marks that begin and end a sentence, without what fills them up."""
    marks = rows(alphabet, [alphabet.begin, alphabet.end])
    return [row[: int(row.nonzero()[0].max()) + 1].tolist() for row in marks]


def word(alphabet: Alphabet, row: Sequence[int]) -> str:
    """Read a row; what was cut off is lost, and so is what the model has no letter for."""
    ids = [id - 1 for id in row if id > 0]
    vocabulary = _vocabulary(alphabet)
    if isinstance(alphabet, ByteAlphabet):
        return bytes(id for id in ids if id < 256).decode("utf-8", "replace")
    if isinstance(alphabet, Lexicon) and alphabet.characters:
        letters = [alphabet.characters[id] for id in ids[int(vocabulary is not None) :]]
        return "".join(letters[1:-1])
    return vocabulary.words[ids[0]] if vocabulary and ids else ""


def _num_letters(alphabet: Alphabet) -> int:
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
