import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.errors import DataError
from elmore.text.sentences import WINDOW, split_sentences
from tests.support.linear_time import is_linear

pytest.importorskip("sentencex")


def sentences(text: str, language: str = "en") -> list[str]:
    return [text[start:end] for start, end in split_sentences(text, language)]


@pytest.mark.parametrize(
    "expected",
    [
        ["One came.", "Two left!", "Did three?", "Four"],
        ["Mr. Smith paid $1.50 to J. R. R. Tolkien.", "He left."],
        ["He said no.", '"Why?"', "She left."],
        ['"Why?" she said.', "He left."],
        ['He said "Go."', '"Where?" she said.', "“Home.”", "‘Now!’", "(At once.)", "So I went."],
        ["He can't.", "She won't.", "The dogs' bowl is old.", "It is."],
        ['A quote " left open.', "A bracket ( too.", "They do no harm.", 'None "at all.'],
    ],
    ids=lambda expected: expected[0],
)
def test_joined_sentences_come_apart_again(expected: list[str]):
    assert sentences(" ".join(expected)) == expected


@pytest.mark.parametrize("space", [" ", "\n"], ids=repr)
def test_a_text_of_many_windows_is_split_as_its_parts_are(space: str):
    part = [
        *("Mr. Smith paid J. R. R. Tolkien [1. 2. 3.] in Łódź.", "“Why?” she said.", "„Ja.“"),
        *("中文。", "他走。", "Is it 1.5 m or e.g. 2 m long?", "They left."),
    ]
    texts = [space.join(part), *(space.join([*part, "Wa" + n * "a" + "!"]) for n in range(1, 60))]
    text = space.join(texts)
    assert len(text) > 3 * WINDOW
    assert sentences(text) == [sentence for part in texts for sentence in sentences(part)]


@pytest.mark.parametrize("blank", ["\n\n", "\r\n\r\n", "\r\r", "\n \t\n", "\n\n\n", "\u2029"])
def test_a_blank_line_ends_a_sentence(blank: str):
    assert sentences(f"A title{blank}and more") == ["A title", "and more"]


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_a_wrapped_line_does_not_end_a_sentence(line_break: str):
    wrapped = f"A long{line_break}sentence."
    assert sentences(wrapped) == [wrapped]


def test_abbreviations_are_those_of_the_language():
    german = "Das gilt z.B. für Prof. Müller bzw. Frau Dr. Maier. „Ja.“ Er ging."
    assert sentences(german, "de")[1:] == ["„Ja.“", "Er ging."]
    assert sentences("他说。“好。”他走。", "zh") == ["他说。", "“好。”", "他走。"]


@pytest.mark.parametrize("text", ["", " ", "\n\n \n", "\u2029"])
def test_a_text_without_words_has_no_sentences(text: str):
    assert split_sentences(text) == []


def test_offsets_count_characters_of_the_raw_text():
    assert split_sentences(" 😀 Hi.  Yes.\n\nNo ") == [(1, 6), (8, 12), (14, 16)]


def check(text: str) -> None:
    spans = split_sentences(text)
    covered = [index for start, end in spans for index in range(start, end)]
    assert covered == sorted(set(covered))
    assert {index for index, char in enumerate(text) if not char.isspace()} <= set(covered)
    assert all(text[start:end] == text[start:end].strip() != "" for start, end in spans)


@given(st.text())
def test_sentences_cover_any_text_but_its_whitespace(text: str):
    check(text)


@given(
    st.text("aA1.?!…。\"'“”„«»()[]- \n\r\t\x1c\x85\u00a0\u200b\u2029\u0301中😀\ud800", max_size=200)
)
def test_sentences_cover_tricky_text_but_its_whitespace(text: str):
    check(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        *("a", "A. ", "“ A. ", "« Foo. ", '"Foo. ', "( Foo. ", "'", ". "),
        *("中。", "é!", "é?é", "\n", "\n ", "\r", "a\n\n"),
    ],
)
def test_split_takes_linear_time_on(unit: str):
    assert is_linear(split_sentences, unit)


def test_a_missing_sentencex_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(DataError, match="pip install sentencex"):
        split_sentences("One. Two.")
