import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.errors import DataError
from elmore.text import target_word
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
    assert target_word.parse_targets(text, penn) == (words, places)


def test_text_that_is_split_on_spaces_keeps_its_tokens():
    assert target_word.parse_targets("the [play's] end .", whitespace) == (
        ["the", "play's", "end", "."],
        [1],
    )


tokens = st.lists(st.text("ab[]\\.'", min_size=1, max_size=4), min_size=1, max_size=6)


def test_a_marked_word_is_found_among_the_tokens_of_its_sentence():
    assert target_word.parse_target("the [play] was sold out.") == target_word.WordInContext(
        ["the", "play", "was", "sold", "out", "."], 1
    )
    assert target_word.parse_target("[It]'s here") == target_word.WordInContext(
        ["It", "'s", "here"], 0
    )
    assert target_word.parse_target("the [ play ] was") == target_word.WordInContext(
        ["the", "play", "was"], 1
    )


def test_the_tokens_are_those_of_the_sentence_without_brackets():
    text = "They don't like the [U.S.] dollar (yet)."
    assert (
        target_word.parse_target(text).tokens == penn(text.replace("[", "").replace("]", "")).words
    )


def test_tokens_between_spaces_stay_as_they_are():
    assert target_word.parse_target("don't [play.] it", whitespace) == target_word.WordInContext(
        ["don't", "play.", "it"], 1
    )


def test_a_backslash_makes_a_bracket_a_bracket():
    assert target_word.parse_target(
        r"see \[ 1 \] of the [play]", whitespace
    ) == target_word.WordInContext(["see", "[", "1", "]", "of", "the", "play"], 6)
    assert target_word.parse_target(r"a [\[] b", whitespace) == target_word.WordInContext(
        ["a", "[", "b"], 1
    )


@given(tokens, st.data())
def test_a_formatted_occurrence_is_parsed_again(words, data):
    position = data.draw(st.integers(0, len(words) - 1))
    assert target_word.parse_target(
        target_word.format_target(words, position), whitespace
    ) == target_word.WordInContext(words, position)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("the play was sold out", "no word is marked"),
        ("", "no word is marked"),
        ("the [play] was [sold] out", "2 words are marked"),
        ("the [play was", "the brackets do not match"),
        ("the ]play[ was", "the brackets do not match"),
        ("the [[play]] was", "the brackets do not match"),
        ("the [] was", "no word between the brackets"),
        ("the [ ] was", "no word between the brackets"),
        ("the [play was] sold", "'play was' is 2 tokens"),
        ("I [can't] go", '"ca n\'t" is 2 tokens'),
        ("they were [play]ing", "'play' is only a part of the token 'playing'"),
    ],
)
def test_a_query_that_marks_no_single_word_is_reported_in_one_sentence(text, said):
    with pytest.raises(DataError) as refused:
        target_word.parse_target(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["word " * 4000, f"[{'a b ' * 4000}]", f"[{'a' * 9000}]b"])
def test_a_long_sentence_is_not_repeated_in_its_error_message(text):
    with pytest.raises(DataError) as refusal:
        target_word.parse_target(text)
    assert str(refusal.value).startswith(repr(text[:80])[:-1] + "...': ")
    assert len(str(refusal.value)) < 400


def test_a_tokenizer_that_rewrites_words_is_refused():
    with pytest.raises(DataError, match="the tokenizer changed the words"):
        target_word.parse_target("the [Play]", lambda text: text.lower().split())
