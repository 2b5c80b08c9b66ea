import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.errors import DataError
from elmore.text.characters import NO_TOKEN, ByteAlphabet, Lexicon, WordAlphabet, encode_batch
from elmore.text.vocabulary import MANY_LANGS_MARKS, Vocabulary
from tests.support.numpy_elmo import byte_ids

ALPHABET = ByteAlphabet()
MARKS = ("<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>")


@pytest.mark.parametrize(
    ("word", "width", "ids"),
    [
        ("th", 5, [258, 116, 104, 259]),
        ("thhhhh", 5, [258, 116, 104, 104, 259]),
        ("Āt", 5, [258, 196, 128, 116, 259]),
        ("", 5, [258, 259]),
        ("<S>", 50, [258, 256, 259]),
        ("</S>", 50, [258, 257, 259]),
        ("<s>", 50, [258, 60, 115, 62, 259]),
        ("\ud800a", 50, [258, 97, 259]),  # half a character has no bytes
    ],
)
def test_a_word_is_its_bytes_between_two_marks(word, width, ids):
    assert ByteAlphabet(width).encode_word(word) == ids


@given(st.text(max_size=60), st.integers(3, 60))
def test_any_word_is_spelled_as_the_definition_says(word, width):
    padded = ByteAlphabet(width).encode_word(word)
    assert padded + [260] * (width - len(padded)) == byte_ids(word, width)


def test_the_cut_falls_on_bytes_even_inside_a_character():
    spelled = ALPHABET.encode_word("é" * 30)
    assert len(spelled) == 50
    assert spelled[1:-1] == list("é".encode() * 24)
    assert ALPHABET.encode_word("a" + "é" * 30)[1:-1] == list(b"a" + "é".encode() * 23 + b"\xc3")


def test_a_batch_numbers_each_distinct_word_once():
    ids = encode_batch(ALPHABET, [["a", "b", "a"], [], ["b"]])
    assert ids.index.tolist() == [[0, 2, 3, 2, 1], [0, 1, -1, -1, -1], [0, 3, 1, -1, -1]]
    assert ids.characters.tolist() == [
        [258, 256, 259],
        [258, 257, 259],
        [258, 97, 259],
        [258, 98, 259],
    ]
    assert ids.words is None


@given(st.lists(st.lists(st.text(max_size=5), max_size=6), max_size=6))
def test_a_batch_can_be_read_back(sentences):
    words, batch = WordsSeen(), sentences
    index = encode_batch(words, batch).index
    rows = [[words.seen[i] for i in row if i != NO_TOKEN] for row in index]
    assert rows == [["<S>", *sentence, "</S>"] for sentence in batch]


class WordsSeen:
    begin, end = "<S>", "</S>"

    def encode(self, words):
        self.seen = words
        return None, np.arange(len(words))


def test_a_string_for_a_list_of_tokens_is_refused():
    with pytest.raises(DataError, match="expected a list of tokens, found 'a b'"):
        encode_batch(ALPHABET, ["a b"])


def test_a_word_alphabet_knows_the_words_of_its_vocabulary():
    alphabet = WordAlphabet(Vocabulary(("</S>", "<S>", "<UNK>", "bank")))
    ids = encode_batch(alphabet, [["bank", "zzz"]])
    assert ids.characters is None
    assert ids.words.tolist() == [1, 0, 3, 2]


def lexicon(width: int = 50) -> Lexicon:
    vocabulary = Vocabulary(("<oov>", "<bos>", "<eos>", "<pad>", "ab"), MANY_LANGS_MARKS)
    return Lexicon(("a", "b", *MARKS), vocabulary, width)


def test_a_lexicon_opens_a_word_with_eow_and_closes_it_with_bow():
    characters, words = lexicon().encode(["ab", "a日"])
    bos, eos, oov, pad, bow, eow = range(2, 8)
    assert characters.tolist() == [[eow, 0, 1, bow], [eow, 0, oov, bow]]
    assert words.tolist() == [4, 0]
    assert lexicon().encode(["<bos>", "b", "<eos>"])[0].tolist() == [
        [eow, bos, bow],
        [eow, 1, bow],
        [eow, eos, bow],
    ]
    assert lexicon().encode(["", "b"])[0].tolist() == [[eow, bow, pad], [eow, 1, bow]]


def test_a_lexicon_cuts_code_points_and_looks_the_cut_word_up():
    characters, words = lexicon(width=4).encode(["abbbbb"])
    assert characters.tolist() == [[7, 0, 1, 6]]
    assert words.tolist() == [4]  # "ab" is what is left of it


def test_a_lexicon_without_its_marks_is_refused():
    with pytest.raises(DataError, match="the character lexicon has no '<pad>'"):
        Lexicon(("a", "<bos>", "<eos>", "<oov>"), None)


@pytest.mark.parametrize("word", [3, None, b"x", ["a"]])
def test_a_token_that_is_not_a_string_is_named(word):
    with pytest.raises(DataError, match="expected tokens that are strings, found"):
        encode_batch(ALPHABET, [["a", word]])


def test_a_lexicon_without_characters_knows_words_alone():
    vocabulary = Vocabulary(("<bos>", "<eos>", "<oov>", "a"), MANY_LANGS_MARKS)
    characters, words = Lexicon(None, vocabulary).encode(["a", "b", "<eos>"])
    assert characters is None
    assert words.tolist() == [3, 2, 1]
