import pytest

from elmore.text.treebank import plain_punctuation


@pytest.mark.parametrize(
    ("word", "plain"),
    [("``", '"'), ("''", '"'), ("`", "'"), ("-LRB-", "("), ("-RSB-", "]"), ("-RCB-", "}")],
)
def test_treebank_quotes_and_brackets_become_plain(word, plain):
    assert plain_punctuation(word) == plain


@pytest.mark.parametrize("word", ['"', "'", "'s", "(", "-lrb-", "-LRB-s", "```", "--", ""])
def test_every_other_word_is_unchanged(word):
    assert plain_punctuation(word) == word
