import numpy as np
import pytest
from safetensors.numpy import save_file

from elmore.errors import WeightsError
from elmore.tasks.embedding import word_vectors
from elmore.tasks.embedding.spec import hash_vectors
from elmore.tasks.embedding.word_vectors import WordVectors, read_word_vectors


def test_any_word_comes_back_with_its_vector_to_the_bit(tmp_path, rng):
    words = ["\ufeffa", "b\r", "c\nd", "e\x85f", "g h", '"', "ü", "null", ""]
    matrix = rng.normal(size=(len(words), 3)).astype(np.float32)
    before = WordVectors({word: row for row, word in enumerate(words)}, matrix)
    word_vectors.save_copy(before, tmp_path / "x")
    after = word_vectors.load_copy(tmp_path / "x")
    assert after.words == before.words
    np.testing.assert_array_equal(after.matrix, before.matrix)
    assert hash_vectors(after) == hash_vectors(before)


def test_a_word_that_came_twice_keeps_its_first_vector_and_the_same_digest(tmp_path):
    (tmp_path / "x.txt").write_text("a 1 2\nb 3 4\na 5 6\nc 7 8\n")
    before = read_word_vectors(tmp_path / "x.txt")
    word_vectors.save_copy(before, tmp_path / "x")
    after = word_vectors.load_copy(tmp_path / "x")
    assert after.words == before.words == {"a": 0, "b": 1, "c": 3}
    assert hash_vectors(after) == hash_vectors(before)


def as_bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), dtype=np.uint8)


@pytest.mark.parametrize(
    "tensors",
    [
        {"matrix": np.zeros((2, 3), np.float32)},
        {"matrix": np.zeros((2, 3), np.float32), "words": as_bytes('["a"]')},
        {"matrix": np.zeros((2, 3), np.float32), "words": as_bytes('{"a": 0, "b": 1}')},
        {"matrix": np.zeros((2, 3), np.float32), "words": as_bytes("3")},
        {"matrix": np.zeros((2, 3), np.float32), "words": as_bytes("[" * 9999)},
        {"matrix": np.zeros((2, 3), np.float32), "words": np.zeros(2, np.uint8) + 255},
        {"matrix": np.zeros((2, 3)), "words": as_bytes('["a", "b"]')},
        {"matrix": np.zeros(2, np.float32), "words": as_bytes('["a", "b"]')},
        {"matrix": np.full((2, 3), np.nan, np.float32), "words": as_bytes('["a", "b"]')},
        {"matrix": np.full((2, 3), np.inf, np.float32), "words": as_bytes('["a", "b"]')},
    ],
)
def test_a_file_without_vectors_is_refused(tmp_path, tensors):
    save_file(tensors, tmp_path / "x")
    with pytest.raises(
        WeightsError, match=r"x: (not readable word vectors|expected a finite float32 matrix)"
    ):
        word_vectors.load_copy(tmp_path / "x")
    (tmp_path / "x").write_bytes(b"nothing")
    with pytest.raises(WeightsError, match="x: not readable word vectors"):
        word_vectors.load_copy(tmp_path / "x")
