import pytest

from elmore.text import marked
from elmore.text.tokenizers import penn, whitespace


@pytest.mark.parametrize(
    ("text", "words", "places"),
    [
        ("the [play] was good.", ["the", "play", "was", "good", "."], [1]),
        ("[Play], he said", ["Play", ",", "he", "said"], [0]),
        ("we [don't] [know]", ["we", "do", "n't", "know"], [1, 2, 3]),
        ("no mark here", ["no", "mark", "here"], []),
        ("[two words] [] x", ["[", "two", "words", "]", "[", "]", "x"], []),
    ],
)
def test_a_word_in_brackets_is_found_and_loses_them(text, words, places):
    assert marked.read(text, penn) == (words, places)


def test_text_that_is_split_on_spaces_keeps_its_tokens():
    assert marked.read("the [play's] end .", whitespace) == (["the", "play's", "end", "."], [1])
