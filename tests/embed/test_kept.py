"""What is known of words is found again, until others need the room."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from elmore.embed.kept import UNKNOWN, Kept


def number(word: str) -> list[float]:
    return [float(ord(word))]


@given(st.integers(0, 5), st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=5)))
def test_a_row_is_that_of_its_word_or_there_is_none(room, asked):
    kept = Kept(torch.full((room, 1), -1.0))
    for words in asked:
        before = kept.find(words)
        new = [word for word, row in zip(words, before, strict=True) if row == UNKNOWN]
        kept.keep(new, torch.tensor([number(word) for word in new]).reshape(-1, 1))
        rows = kept.find(words)
        for word, row in zip(words, rows.tolist(), strict=True):
            assert row == UNKNOWN or kept.table[row].tolist() == number(word)
        if len(words) <= room:
            assert (rows != UNKNOWN).all()
        assert len(kept) <= room


def test_the_longest_unused_gives_way():
    kept = Kept(torch.empty(2, 1))
    kept.keep("ab", torch.tensor([number("a"), number("b")]))
    kept.find("a")
    kept.keep("c", torch.tensor([number("c")]))
    assert (kept.find("abc") == UNKNOWN).tolist() == [False, True, False]
