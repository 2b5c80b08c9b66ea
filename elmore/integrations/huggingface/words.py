"""The words of one text: what `tokens()`, `word_ids()` and their like answer with."""

from typing import NamedTuple


class Words(NamedTuple):
    """One text of a batch: what a `BatchEncoding` asks its encodings for."""

    tokens: list[str]
    offsets: list[tuple[int, int]]
    """In the string; where words were given, in each word."""
    word_ids: list[int | None]
    n_sequences: int = 1

    @property
    def sequence_ids(self) -> list[int | None]:
        """Say of which text each word is: there is but one."""
        return [None if number is None else 0 for number in self.word_ids]

    def char_to_token(self, place: int, sequence: int = 0) -> int | None:
        """Say which word holds a character of the string."""
        held = (i for i, (start, end) in enumerate(self.offsets) if start <= place < end)
        return next(held, None)

    def token_to_chars(self, number: int) -> tuple[int, int] | None:
        """Say where a word stands."""
        return None if self.word_ids[number] is None else self.offsets[number]

    def padded(self, length: int, pad: str) -> "Words":
        """Add words that are not there."""
        count = max(0, length - len(self.tokens))
        return Words(
            self.tokens + [pad] * count,
            self.offsets + [(0, 0)] * count,
            self.word_ids + [None] * count,
        )
