import lzma
import os
from pathlib import Path

import pytest

from elmore.errors import DataError
from elmore.tasks.data.columns import TaggedSentence
from elmore.tasks.pos.data import read_conllu


def row(number: str, word: str, upos: str = "VERB", xpos: str = "VB") -> str:
    return "\t".join([number, word, "_", upos, xpos, *"_____"]) + "\n"


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "tags.conllu"
    path.write_text(text, encoding="utf-8")
    return path


TWO = "# text = Go !\n" + row("1", "Go") + row("2", "!", "PUNCT", ".") + "\n" + row("1", "Stop")


def test_words_come_with_the_tags_of_the_language(tmp_path):
    sentences = [TaggedSentence(["Go", "!"], ["VB", "."]), TaggedSentence(["Stop"], ["VB"])]
    assert read_conllu(file(tmp_path, TWO)) == sentences


def test_words_come_with_universal_tags_when_asked(tmp_path):
    assert read_conllu(file(tmp_path, TWO), column="upos")[0].tags == ["VERB", "PUNCT"]


def test_features_are_one_tag_and_may_be_none(tmp_path):
    lines = "1\tit\tit\tPRON\tPRP\tNumber=Sing|Person=3\t_\t_\t_\t_\n" + row("2", "!")
    assert read_conllu(file(tmp_path, lines), column="feats") == [
        TaggedSentence(["it", "!"], ["Number=Sing|Person=3", "_"])
    ]


def test_a_packed_file_is_read(tmp_path):
    path = tmp_path / "tags.conllu.xz"
    path.write_bytes(lzma.compress(TWO.encode()))
    assert read_conllu(path) == read_conllu(file(tmp_path, TWO))


def test_multiword_ranges_and_empty_nodes_are_no_words(tmp_path):
    lines = [
        row("1-2", "don't", "_", "_"),
        row("1", "do"),
        row("2", "n't", "PART", "RB"),
        row("2.1", "go"),
    ]
    assert read_conllu(file(tmp_path, "".join(lines)))[0].tokens == ["do", "n't"]


def test_a_hash_and_an_underscore_may_be_words(tmp_path):
    text = row("1", "#", "SYM", "NN") + row("2", "_", "PUNCT", "NFP")
    assert read_conllu(file(tmp_path, text)) == [TaggedSentence(["#", "_"], ["NN", "NFP"])]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TWO + row("2", "it", "PRON", "_"), "tags.conllu:6: 'it' has no xpos tag; .* upos tags"),
        ("1\tGo\tVB\n", "tags.conllu:1: expected 10 columns of CoNLL-U.* found 3"),
        (
            "1 Go go VERB VB _ _ _ _ _\n",
            "tags.conllu:1: .* 10 columns of CoNLL-U, separated by tabs.* found 1",
        ),
        (row("one", "Go"), "tags.conllu:1: expected an ID.* found 'one'"),
        (row("1", ""), "tags.conllu:1: the second column, the word, is empty"),
        ("# nothing\n", "tags.conllu: no sentence found"),
    ],
)
def test_a_bad_line_is_named(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_conllu(file(tmp_path, text))


def test_a_missing_universal_tag_points_to_the_other_column(tmp_path):
    with pytest.raises(DataError, match="'it' has no upos tag; does the file have xpos tags"):
        read_conllu(file(tmp_path, row("1", "it", "_", "PRP")), column="upos")


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "tags.conllu.xz"
    path.write_bytes(lzma.compress(TWO.encode())[:-9])
    with pytest.raises(DataError, match=r"tags\.conllu\.xz: damaged or truncated"):
        read_conllu(path)


def test_the_english_web_treebank_is_read_whole():
    if "ELMORE_DATA" not in os.environ:
        pytest.skip("ELMORE_DATA is not set: the English Web Treebank is not here")
    path = Path(os.environ["ELMORE_DATA"]) / "tasks" / "pos" / "en_ewt-ud-dev.conllu.xz"
    universal = read_conllu(path, column="upos")
    # Blank lines, and lines that start with a whole number, counted with grep.
    assert (len(universal), sum(len(sentence.tokens) for sentence in universal)) == (2001, 25147)
    assert len({tag for sentence in universal for tag in sentence.tags}) == 17
