"""Texts held in windows: in order, within the budget, and none nearly empty at the end."""

from hypothesis import given
from hypothesis import strategies as st

from elmore.embed.tokenized import TokenizedText, windows

lengths = st.lists(st.integers(0, 12), max_size=60)


@given(lengths, st.integers(1, 60))
def test_every_text_comes_once_in_order_and_the_budget_holds(sizes, budget):
    texts = [TokenizedText([["word"] * size], None) for size in sizes]
    found = list(windows(texts, budget))
    assert [text for window in found for text in window] == texts
    for window in found:
        assert len(window) <= 1 or sum(text.num_tokens for text in window) <= budget


def test_the_last_two_windows_share_what_is_left():
    texts = [TokenizedText([["word"] * 8], None)] * 21  # of 10 tokens each
    assert [len(window) for window in windows(texts, 100)] == [10, 6, 5]


def test_a_window_goes_out_while_the_next_but_one_is_read():
    taken = []

    def texts():
        for number in range(100):
            taken.append(number)
            yield TokenizedText([["word"] * 8], None)

    assert len(next(windows(texts(), 100))) == 10
    assert len(taken) == 21
