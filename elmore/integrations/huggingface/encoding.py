"""The words of one text, for `BatchEncoding.tokens()`, `word_ids()` and similar methods."""

from typing import NamedTuple


class WordEncoding(NamedTuple):
    """One text of a batch, with the attributes that a `BatchEncoding` reads."""

    tokens: list[str]
    offsets: list[tuple[int, int]]
    """Character spans in the string, or in each word if words were given."""
    word_ids: list[int | None]
    n_sequences: int = 1

    @property
    def sequence_ids(self) -> list[int | None]:
        """0 for every word and None for padding: there are no text pairs."""
        return [None if number is None else 0 for number in self.word_ids]

    def char_to_token(self, char_index: int, sequence: int = 0) -> int | None:
        """Return the index of the word that contains a character; None for a space.

        Args:
            char_index: Index of the character in the string.
            sequence: Always 0: there are no text pairs.
        """
        matches = (i for i, (start, end) in enumerate(self.offsets) if start <= char_index < end)
        return next(matches, None)

    def token_to_chars(self, token_index: int) -> tuple[int, int] | None:
        """Return the character span of a word; None for padding.

        Args:
            token_index: Index of the word.
        """
        return None if self.word_ids[token_index] is None else self.offsets[token_index]

    def pad(self, length: int, pad_token: str) -> "WordEncoding":
        """Return a padded copy.

        Args:
            length: Number of words after padding.
            pad_token: The word to pad with.
        """
        count = max(0, length - len(self.tokens))
        return WordEncoding(
            self.tokens + [pad_token] * count,
            self.offsets + [(0, 0)] * count,
            self.word_ids + [None] * count,
        )
