import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from elmore.errors import DataError
from elmore.tasks.embedding.word_vectors import read_word_vectors


def file(tmp_path: Path, text: str, name: str = "words.txt") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def matrix(tmp_path: Path, array: np.ndarray, words: str, name: str = "v.npy") -> Path:
    np.save(tmp_path / name, array)
    file(tmp_path, words, "v.words.txt")
    return tmp_path / name


GLOVE = "the 1 2\nThe 3 4\nparis -0.5 1e-1\n"


@pytest.mark.parametrize("text", [GLOVE, "3 2\n" + GLOVE, GLOVE.replace("\n", " \n")])
def test_text_is_read_with_and_without_a_header(tmp_path, text):
    vectors = read_word_vectors(file(tmp_path, text))
    assert vectors.words == {"the": 0, "The": 1, "paris": 2}
    assert vectors.matrix.dtype == np.float32
    np.testing.assert_array_equal(vectors.matrix, np.float32([[1, 2], [3, 4], [-0.5, 0.1]]))


def test_packed_text_is_read(tmp_path):
    path = tmp_path / "words.txt.gz"
    path.write_bytes(gzip.compress(GLOVE.encode()))
    assert read_word_vectors(path).dim == 2


WORD2VEC = b"2 2\n" + b"".join(
    word.encode() + b" " + np.float32(numbers).tobytes()
    for word, numbers in (("the", [1, 2]), ("Zoë_X", [-0.5, 3]))
)


@pytest.mark.parametrize("end", ["", "\n"], ids=["gensim", "word2vec.c"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_binary_vectors_are_read(tmp_path, end, pack):
    """Some programs write a line break after each vector, some do not."""
    data = WORD2VEC.replace(b"Zo", end.encode() + b"Zo") + end.encode()
    path = tmp_path / ("v.bin" if pack is bytes else "v.bin.gz")
    path.write_bytes(pack(data))
    vectors = read_word_vectors(path)
    assert vectors.words == {"the": 0, "Zoë_X": 1}
    assert vectors.matrix.dtype == np.float32
    assert vectors.matrix.tolist() == [[1, 2], [-0.5, 3]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (WORD2VEC[:-1], "line 1 announces 2 words of width 2, and the file ends in word 2"),
        (WORD2VEC[:12], "line 1 announces 2 words of width 2, and the file ends in word 1"),
        (WORD2VEC.replace(b"2 2", b"3 2"), "line 1 announces 3 words of width 2"),
        (WORD2VEC.replace("ë".encode(), b"\xff"), "word 2 is not UTF-8"),
        ((793712314).to_bytes(4, "little") + b"x" * 9, "a fastText model, .* pass its .vec"),
        (b"the 1 2\n", "expected a first line with the number of words"),
        (b"", "expected a first line with the number of words"),
        (b"1 1\na " + np.float32([np.nan]).tobytes(), "the vector of 'a' has an element"),
    ],
    ids=["cut", "cut early", "announced", "bytes", "fastText", "text", "empty", "nan"],
)
def test_bad_binary_vectors_are_named(tmp_path, data, message):
    (tmp_path / "v.bin").write_bytes(data)
    with pytest.raises(DataError, match=rf"v\.bin: .*{message}"):
        read_word_vectors(tmp_path / "v.bin")


def test_cut_packed_vectors_are_named(tmp_path):
    (tmp_path / "v.bin.gz").write_bytes(gzip.compress(WORD2VEC)[:30])
    with pytest.raises(DataError, match=r"v\.bin\.gz: damaged or truncated"):
        read_word_vectors(tmp_path / "v.bin.gz")


@pytest.mark.parametrize("name", ["v.npy", "v.f16.npy"])
def test_a_matrix_finds_its_words_beside_it(tmp_path, name):
    vectors = read_word_vectors(matrix(tmp_path, np.float16([[1, 2], [3, 4]]), "the\nThe\n", name))
    assert vectors.words == {"the": 0, "The": 1}
    assert vectors.matrix.dtype == np.float32
    np.testing.assert_array_equal(vectors.lookup(["The"]), [[3, 4]])


def test_a_token_is_looked_up_as_written_then_in_lower_case_then_not_at_all(tmp_path):
    vectors = read_word_vectors(file(tmp_path, GLOVE))
    assert vectors.ids(["The", "THE", "Paris", "rome"]).tolist() == [1, 0, 2, -1]
    result = vectors.lookup(["The", "THE", "rome"])
    assert result.dtype == np.float32
    assert result.tolist() == [[3, 4], [1, 2], [0, 0]]
    assert vectors.lookup([]).shape == (0, 2)


def test_a_word_may_hold_blanks(tmp_path):
    vectors = read_word_vectors(
        file(tmp_path, ", 0 0\n. . . 1 2\nat name@domain.com 3 4\na\xa0b 5 6\n")
    )
    assert list(vectors.words) == [",", ". . .", "at name@domain.com", "a\xa0b"]


def test_a_word_with_blanks_may_come_first(tmp_path):
    vectors = read_word_vectors(file(tmp_path, ". . . 1 2\n, 0 0\n"))
    assert list(vectors.words) == [". . .", ","]


def test_fasttext_has_a_header_and_a_blank_at_the_end_of_a_line(tmp_path):
    vectors = read_word_vectors(file(tmp_path, "2 3\n12 1 2 3 \nthe 4 5 6 \n", "wiki.vec"))
    assert vectors.words == {"12": 0, "the": 1}
    assert vectors.dim == 3


def test_a_number_may_be_a_word(tmp_path):
    assert list(read_word_vectors(file(tmp_path, "1 2 3\n2 2 3\nnan 2 3\n")).words) == [
        "1",
        "2",
        "nan",
    ]


def test_of_a_word_that_comes_twice_the_first_counts(tmp_path):
    assert read_word_vectors(file(tmp_path, "a 1\nb 2\na 3\n")).lookup(["a", "b"]).tolist() == [
        [1],
        [2],
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2\nb 1\n", r"words.txt:2: expected a word and 2 numbers, found 1"),
        ("a 1 2\nb 1 2 3\n", r"words.txt:2: expected a word and 2 numbers, found more"),
        ("2 3\na 1 2\n", r"words.txt:2: expected a word and 3 numbers, found 2"),
        ("a 1 2\nb 1 x\n", r"words.txt:2: in the vector of 'b', .*'x'"),
        ("a 1 2\nb 1 nan\n", r"words.txt: the vector of 'b' has an element that is not a finite"),
        ("a 1 2\nb inf 1\n", r"words.txt: the vector of 'b' has an element that is not a finite"),
        ("a 1 2\nb 1e39 1\n", r"the vector of 'b' has an element .* not a finite .* in float32"),
        ("3 2\na 1 2\n", r"words.txt: line 1 announces 3 words, found 1"),
        ("1 2\na 1 2\nb 1 2\n", r"words.txt: line 1 announces 1 words, found 2"),
        ("hello\n", r"words.txt:1: expected a word and its numbers, found 'hello'"),
        ("0 2\n", r"words.txt: no word vector found"),
        ("", r"words.txt: empty"),
    ],
)
def test_bad_text_is_named(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_word_vectors(file(tmp_path, text))


@pytest.mark.parametrize(
    ("array", "words", "message"),
    [
        (np.zeros((2, 3)), "a\n", r"v.words.txt: 1 words for the 2 rows of v.npy"),
        (np.zeros(3), "a\n", r"v.npy: expected a matrix of floats.* found shape \(3,\)"),
        (np.zeros((1, 3), dtype=np.int64), "a\n", r"v.npy: expected a matrix of floats.* int64"),
        (np.array([[1, np.nan]]), "a\n", r"the vector of 'a' has an element that is not a finite"),
        (np.array([[np.inf, -np.inf]]), "a\n", r"the vector of 'a' has an element"),
        (
            np.array([[0, 0], [-1e39, 1]]),
            "a\nb\n",
            r"of 'b' has an element .* finite .* in float32",
        ),
        (np.array([[{}]], dtype=object), "a\n", r"v.npy: not a readable array"),
    ],
)
def test_a_bad_matrix_is_named(tmp_path, array, words, message):
    with pytest.raises(DataError, match=message):
        read_word_vectors(matrix(tmp_path, array, words))


def test_a_matrix_without_words_is_named(tmp_path):
    np.save(tmp_path / "v.f16.npy", np.zeros((1, 2), dtype=np.float16))
    with pytest.raises(DataError, match=r"its words are missing; expected them in .*v\.words\.txt"):
        read_word_vectors(tmp_path / "v.f16.npy")


def test_a_file_that_is_not_a_matrix_is_named(tmp_path):
    with pytest.raises(DataError, match=r"v\.npy: not a readable array"):
        read_word_vectors(file(tmp_path, "hello", "v.npy"))
    with pytest.raises(DataError, match=r"none\.txt: cannot be read"):
        read_word_vectors(tmp_path / "none.txt")


def test_the_glove_subset_is_read():
    if "ELMORE_DATA" not in os.environ:
        pytest.skip("ELMORE_DATA is not set: the GloVe subset is not here")
    folder = Path(os.environ["ELMORE_DATA"]) / "vectors"
    vectors = read_word_vectors(folder / "glove.6B.50d.subset.f16.npy")
    assert vectors.matrix.shape == (94047, 50)
    king, queen, table = vectors.lookup(["King", "queen", "table"])
    assert king @ queen > king @ table


def test_a_pattern_that_matches_several_files_is_refused(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("a 1 2\n")
    with pytest.raises(DataError, match="expected one file of vectors, found 2"):
        read_word_vectors(tmp_path / "*.txt")


def test_a_table_is_no_file_of_vectors(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="expected lines of text, found a table"):
        read_word_vectors(tmp_path / "a.parquet")
