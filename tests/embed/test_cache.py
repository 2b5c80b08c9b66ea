"""The table of word vectors: bounded, and the same vectors whatever it still holds."""

import pytest
import torch

from elmore.embed.cache import WordVectors
from elmore.model.bilm import BiLM
from elmore.model.config import BiLMConfig, CharCNNConfig, LSTMConfig, WordsConfig
from elmore.text.characters import ByteAlphabet, WordAlphabet
from elmore.text.vocabulary import Vocabulary

LSTM = LSTMConfig(cell_dim=16, output_dim=8)
ROW = 4 * LSTM.output_dim / 1e6  # megabytes of a vector
WORDS = [f"word-{number}" for number in range(40)]


@pytest.fixture
def model() -> BiLM:
    characters = CharCNNConfig(filters=((1, 8), (3, 8)), num_highways=1)
    return BiLM(BiLMConfig(characters=characters, lstm=LSTM)).eval()


@pytest.fixture
def encoded(model, monkeypatch) -> list[str]:
    """The words that were looked at letter by letter, in their order."""
    seen: list[str] = []
    encode = WordVectors._encode

    def counting(self, words):
        seen.extend(words)
        return encode(self, words)

    monkeypatch.setattr(WordVectors, "_encode", counting)
    return seen


def definition(model, words) -> torch.Tensor:
    characters, _ = ByteAlphabet().encode(words)
    with torch.no_grad():
        return model.tokens(torch.from_numpy(characters), None)


def test_what_is_kept_is_not_encoded_again(model, encoded):
    vectors = WordVectors(model, ByteAlphabet())
    first = vectors(WORDS)
    torch.testing.assert_close(first, definition(model, WORDS))
    assert torch.equal(vectors(WORDS[::-1]), first.flip(0))
    assert encoded == WORDS


def test_the_longest_unused_word_goes_first(model, encoded):
    vectors = WordVectors(model, ByteAlphabet(), megabytes=3.5 * ROW)
    for words in (["a", "b", "c"], ["a"], ["d"], ["a", "c", "d"], ["b"]):
        torch.testing.assert_close(vectors(words), definition(model, words))
    assert encoded == ["a", "b", "c", "d", "b"]


def test_a_word_of_many_letters_is_not_kept(model, encoded):
    vectors = WordVectors(model, ByteAlphabet())
    for _ in range(2):
        vectors(["x" * 101, "y"])
    assert encoded == ["x" * 101, "y", "x" * 101]


def test_a_gpu_without_room_for_a_larger_table_goes_on_with_the_one_it_has(
    model, encoded, monkeypatch
):
    """No GPU is needed to see it: the error is raised where one would raise it."""
    vectors = WordVectors(model, ByteAlphabet())
    vectors(WORDS[:10])
    new_empty = torch.Tensor.new_empty

    def small(like, rows, *rest, **more):
        if rows > 10:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return new_empty(like, rows, *rest, **more)

    monkeypatch.setattr(torch.Tensor, "new_empty", small)
    for begin in (0, 10, 20):
        words = WORDS[begin : begin + 10]
        torch.testing.assert_close(vectors(words), definition(model, words))
    vectors(WORDS[20:30])
    assert encoded == WORDS[:30]


def test_words_of_a_table_need_no_letters():
    words = Vocabulary(("<S>", "</S>", "<UNK>", "a", "b"))
    config = BiLMConfig(
        characters=None,
        words=WordsConfig(num_words=len(words), dim=LSTM.output_dim),
        projection=False,
        lstm=LSTM,
    )
    model = BiLM(config).eval()
    found = WordVectors(model, WordAlphabet(words))(["b", "unheard", "a"])
    with torch.no_grad():
        torch.testing.assert_close(found, model.tokens(None, torch.tensor([4, 2, 3])))
