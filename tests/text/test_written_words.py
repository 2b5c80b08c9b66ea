"""Words as written, and which tokens each of them has."""

from hypothesis import given
from hypothesis import strategies as st

from elmore.text.tokenizers import whitespace
from elmore.text.written_words import join_words, split_text


def tokens_of(split):
    return [[split.tokens[i] for i in word.tokens] for word in split.words]


def test_a_word_has_the_tokens_between_its_spaces():
    split = split_text('Owners won\'t pay.  "No!" she said.')
    assert tokens_of(split) == [
        ["Owners"], ["wo", "n't"], ["pay", "."], ['"', "No", "!", '"'], ["she"], ["said", "."]
    ]  # fmt: skip
    assert [word.sentence for word in split.words] == [0, 0, 0, 1, 1, 1]


def test_text_that_is_tokenised_is_split_at_spaces_only():
    assert tokens_of(split_text("I won't .", tokenizer=whitespace)) == [["I"], ["won't"], ["."]]


def test_regions_stay_whole_and_empty_ones_have_no_tokens():
    joined = join_words(["", "New York", "", "is big.", ""])
    assert joined.text == "New York is big."
    assert [word.start for word in joined.words] == [0, 0, 8, 9, 16]
    assert tokens_of(joined) == [[], ["New", "York"], [], ["is", "big", "."], []]


@given(st.text(st.sampled_from("aB. '\n!-2\u2029"), max_size=40))
def test_every_token_is_in_one_word_and_every_word_is_in_its_place(text):
    split = split_text(text)
    assert [text[word.start : word.end] for word in split.words] == text.split()
    assert [i for word in split.words for i in word.tokens] == list(range(len(split.tokens)))
    assert ["".join(tokens) for tokens in tokens_of(split)] == text.split()


@given(st.lists(st.text(st.sampled_from("aB.'"), max_size=5), max_size=8))
def test_words_that_were_joined_are_found_again(words):
    joined = join_words(words)
    assert [joined.text[word.start : word.end] for word in joined.words] == words
    assert ["".join(tokens) for tokens in tokens_of(joined)] == words
