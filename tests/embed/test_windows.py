"""Texts split into windows."""

from hypothesis import given
from hypothesis import strategies as st

from elmore.embed.tokenized import TokenizedText
from elmore.embed.windows import split_windows

lengths = st.lists(st.lists(st.integers(0, 12), max_size=3).map(tuple), max_size=60)


def text_of(number: int, lengths: tuple[int, ...]) -> TokenizedText:
    words = [f"{number}.{each}" for each in range(sum(lengths))]
    return TokenizedText(words, lengths, [(number, each) for each in range(len(words))])


@given(lengths, st.integers(1, 60))
def test_every_text_comes_once_in_order_and_the_budget_holds(lengths, budget):
    texts = [text_of(number, each) for number, each in enumerate(lengths)]
    result = list(split_windows(texts, budget))
    assert [text for window in result for text in window.texts()] == texts
    for window in result:
        num_tokens = len(window.words) + 2 * len(window.lengths)
        assert len(window.num_words) <= 1 or num_tokens <= budget


def test_the_last_two_windows_share_what_is_left():
    texts = [text_of(0, (8,))] * 21  # of 10 tokens each
    assert [len(window.num_words) for window in split_windows(texts, 100)] == [10, 6, 5]


def test_a_window_is_yielded_while_a_later_one_is_read():
    taken = []

    def texts():
        for number in range(100):
            taken.append(number)
            yield text_of(number, (8,))

    assert len(next(split_windows(texts(), 100)).num_words) == 10
    assert len(taken) == 21


def test_a_list_that_is_filled_anew_for_each_text_is_read_in_time():
    def texts():
        words = []
        for number in range(3):
            words[:] = [str(number)]
            yield TokenizedText(words, (1,), None)

    (window,) = split_windows(texts(), 100)
    assert window.words == ["0", "1", "2"]
