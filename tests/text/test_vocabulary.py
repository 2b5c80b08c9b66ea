import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.errors import DataError
from elmore.text.vocabulary import Vocabulary

MARKS = ["<S>", "</S>", "<UNK>"]
word = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=" \t\r\n"), min_size=1)


def written(folder, lines, name="vocab.txt"):
    path = folder / name
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def test_ids_are_line_numbers_and_the_marks_may_stand_anywhere(tmp_path):
    vocabulary = Vocabulary.read(written(tmp_path, ["</S>", "the", "<UNK>", "<S>"]))
    assert vocabulary.ids(["the", "</S>", "zzz"]).tolist() == [1, 0, 2]
    assert "the" in vocabulary
    assert "zzz" not in vocabulary
    assert len(vocabulary) == 4


def test_a_word_of_a_text_that_is_spelled_like_a_mark_is_unknown():
    vocabulary = Vocabulary((*MARKS, "the"))
    assert vocabulary.ids_in_text(["the", "</S>", "<UNK>", "zzz"]).tolist() == [3, 2, 2, 2]


@given(st.lists(word, unique=True, max_size=20))
def test_written_files_are_read_again(tmp_path_factory, words):
    words = [word for word in words if word not in (*MARKS, "!!!MAXTERMID")]
    vocabulary = Vocabulary((*MARKS, *words))
    path = tmp_path_factory.mktemp("v") / "vocabulary.txt"
    vocabulary.write(path)
    assert Vocabulary.read(path) == vocabulary


def test_published_lists_are_read_as_they_are(tmp_path):
    """Gzipped, with Windows line ends, a byte order mark, and the line that is not a word."""
    text = "\ufeff" + "\r\n".join([*MARKS, "!!!MAXTERMID", "the"]) + "\r\n"
    path = tmp_path / "vocab.txt.gz"
    path.write_bytes(gzip.compress(text.encode()))
    assert Vocabulary.read(path).words == (*MARKS, "the")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["<S>", "</S>", "the"], "lacks '<UNK>'; it must contain <S>, </S>, <UNK>"),
        ([], "lacks '<S>'"),
        ([*MARKS, "a", "b", "a"], "lists 'a' twice, as word 4 and 6"),
        ([*MARKS, "", "a"], "line 4 is empty, expected a word on each line"),
    ],
)
def test_an_invalid_list_is_refused_by_name(tmp_path, lines, message):
    with pytest.raises(DataError, match=rf"vocab\.txt: .*{message}"):
        Vocabulary.read(written(tmp_path, lines))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(DataError, match="not a readable vocabulary"):
        Vocabulary.read(tmp_path)
    with pytest.raises(DataError, match="not a readable vocabulary"):
        Vocabulary.read(tmp_path / "absent.txt")
    (tmp_path / "damaged.txt.gz").write_bytes(gzip.compress(b"a" * 99)[:12] + b"\xff" * 9)
    with pytest.raises(DataError, match="not a readable vocabulary"):
        Vocabulary.read(tmp_path / "damaged.txt.gz")
    (tmp_path / "latin.txt").write_bytes("naïve".encode("latin-1"))
    with pytest.raises(DataError, match="not a readable vocabulary"):
        Vocabulary.read(tmp_path / "latin.txt")
