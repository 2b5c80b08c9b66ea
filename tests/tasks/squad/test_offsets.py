import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from elmore.errors import DataError
from elmore.tasks.squad.offsets import tokenize_with_offsets

texts = st.text(st.sampled_from("abT’'.-,5 \n\t$()é漢🙂\u200b\u3000"), max_size=30) | st.text()


@given(texts, st.data())
def test_any_span_of_any_text_comes_back_from_its_characters(text, data):
    placed = tokenize_with_offsets(text)
    assume(placed.words)
    first = data.draw(st.integers(0, len(placed.words) - 1))
    last = data.draw(st.integers(first, len(placed.words) - 1))
    start, end = placed.characters(first, last)
    assert placed.tokens(start, end) == (first, last)
    assert placed.cut(first, last) == text[start:end]
    letters = "".join(placed.words[first : last + 1])
    assert "".join(placed.cut(first, last).split()) == letters  # nothing but blanks between words


@given(texts, st.data())
def test_a_character_span_maps_to_the_fewest_tokens_that_cover_it(text, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    assume(text[start:end].strip())
    placed = tokenize_with_offsets(text)
    first, last = placed.tokens(start, end)
    spans = enumerate(zip(placed.starts, placed.ends, strict=True))
    touched = [token for token, (a, b) in spans if a < end and start < b]
    assert (first, last) == (touched[0], touched[-1])


def test_part_of_a_token_is_widened_to_it():
    placed = tokenize_with_offsets("In the 12th-century (roughly).")
    assert placed.cut(*placed.tokens(7, 11)) == "12th-century"
    assert placed.cut(*placed.tokens(6, 12)) == "12th-century"
    assert placed.cut(*placed.tokens(20, 22)) == "(roughly"


def test_an_answer_is_cut_as_it_is_written():
    placed = tokenize_with_offsets("a  b\n c", str.split)
    assert placed.cut(0, 2) == "a  b\n c"
    assert placed.characters(1, 1) == (3, 4)


def test_a_tokenizer_that_rewrites_is_refused():
    with pytest.raises(DataError, match="rewrote words of 'Ann ran'"):
        tokenize_with_offsets("Ann ran", lambda text: ["ann", "ran"])
