import lzma
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.errors import DataError
from elmore.tasks.sst.data import FIVE, SentimentExample, add_phrases, read_trees
from tests.support.sweeps import pick

TREE = r"(3 (2 It) (4 (2 's) (4 (0 -LRB-) (1 a\/b))))"


def file(tmp_path: Path, text: str, name: str = "trees.txt") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_tree_is_its_words_its_label_and_its_phrases(tmp_path):
    (result,) = read_trees(file(tmp_path, TREE + "\n"))
    assert result.tokens == ["It", "'s", "(", "a/b"]
    assert result.label == "positive"
    assert Counter(result.phrases) == Counter(
        [
            (0, 1, "neutral"),
            (1, 2, "neutral"),
            (2, 3, "very negative"),
            (3, 4, "negative"),
            (2, 4, "very positive"),
            (1, 4, "very positive"),
        ]
    )


def test_of_two_classes_neutral_is_left_out_of_sentences_and_phrases(tmp_path):
    path = file(tmp_path, TREE + "\n(2 (0 bad) (4 good))\n(0 (2 so) (1 so))\n")
    first, second = read_trees(path, classes=2)
    assert (first.label, second.label) == ("positive", "negative")
    assert {label for _, _, label in first.phrases} == {"negative", "positive"}
    assert second.phrases == ((1, 2, "negative"),)
    with pytest.raises(DataError, match=r"trees\.txt: neutral sentences alone found"):
        read_trees(file(tmp_path, "(2 so)\n"), classes=2)


@pytest.mark.parametrize(
    "escaped", [("-LRB-", "("), ("-RRB-", ")"), ("\\*\\*", "**"), ("``", "``")]
)
def test_escapes_of_the_treebank_are_undone(tmp_path, escaped):
    assert read_trees(file(tmp_path, f"(2 {escaped[0]})"))[0].tokens == [escaped[1]]


def test_blank_lines_and_packed_files_are_read(tmp_path):
    path = tmp_path / "trees.txt.xz"
    path.write_bytes(lzma.compress(b"(1 a)\n\n  \n( 3 (2 b)\t(2 c) )\r\n"))
    assert [(e.label, e.tokens) for e in read_trees(path)] == [
        ("negative", ["a"]),
        ("positive", ["b", "c"]),
    ]


def test_a_no_break_space_belongs_to_its_word(tmp_path):
    assert read_trees(file(tmp_path, "(2 (2 8\xa01\\/2) (2 men))"))[0].tokens == ["8\xa01/2", "men"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(2 a)\n(3 (2 b)\n", r"trees.txt:2: 1 bracket never closed"),
        ("(3 (2 (1 b\n", r"trees.txt:1: 3 brackets never closed"),
        ("(3 (2 b)))\n", r"trees.txt:1: a bracket is closed that was never opened"),
        (")\n", r"trees.txt:1: a bracket is closed that was never opened"),
        ("(2 a)\n(5 b)\n", r"trees.txt:2: expected a label from 0 to 4 .* found '5'"),
        ("((2 b) (3 c))\n", r"trees.txt:1: expected a label from 0 to 4 .* found ''"),
        ("(good b)\n", r"trees.txt:1: expected a label from 0 to 4 .* found 'good'"),
        ("3\tIt works\n", r"trees.txt:1: found '3\\tIt works' before the tree"),
        ("(3 a) b\n", r"trees.txt:1: found 'b' after the tree"),
        ("(3 a) (2 b)\n", r"trees.txt:1: found '\(2 b\)' after the tree"),
        ("(3 (2 ) (2 b))\n", r"trees.txt:1: the phrase \(2\) has no words"),
        ("", r"trees.txt: no sentence found; expected a tree a line"),
        ("\n \n", r"trees.txt: no sentence found"),
    ],
)
def test_a_bad_line_is_named(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_trees(file(tmp_path, text))


def test_phrases_come_after_the_sentences_and_each_once(tmp_path):
    path = file(tmp_path, "(3 (2 a) (4 (2 a) (4 b)))\n(1 (2 a) (0 b))\n(4 (2 a) (4 b))\n")
    assert [(e.label, e.tokens) for e in add_phrases(read_trees(path))] == [
        ("positive", ["a", "a", "b"]),
        ("negative", ["a", "b"]),
        ("very positive", ["a", "b"]),  # a sentence, and a phrase of the first
        ("neutral", ["a"]),
        ("very positive", ["b"]),
        ("very negative", ["b"]),
    ]
    assert all(not example.phrases for example in add_phrases(read_trees(path)))


words = st.text(st.characters(codec="utf-8", exclude_characters="() \t\n\r\\\ufeff"), min_size=1)
trees = st.recursive(
    st.tuples(st.integers(0, 4), words.filter(lambda word: not word.startswith("-"))),
    lambda below: st.tuples(st.integers(0, 4), st.lists(below, min_size=1, max_size=3)),
    max_leaves=8,
)


def written(tree) -> str:
    label, inside = tree
    return f"({label} {inside if isinstance(inside, str) else ' '.join(map(written, inside))})"


def phrases(tree) -> list[tuple[str, list[str]]]:
    """All phrases by the definition, the whole first."""
    label, inside = tree
    if isinstance(inside, str):
        return [(FIVE[label], [inside])]
    below = [phrases(child) for child in inside]
    whole = [word for child in below for word in child[0][1]]
    return [(FIVE[label], whole), *(phrase for child in below for phrase in child)]


@given(trees)
def test_every_phrase_is_read_as_it_was_written(tmp_path_factory, tree):
    (result,) = read_trees(file(tmp_path_factory.mktemp("trees"), written(tree)))
    (label, tokens), *rest = phrases(tree)
    assert (result.label, result.tokens) == (label, tokens)
    cut = [(label, result.tokens[first:after]) for first, after, label in result.phrases]
    assert sorted(cut) == sorted(rest)


@pytest.mark.parametrize(
    ("name", "counts"),
    # the published numbers of sentences of each label, from very negative on
    pick(
        [("dev", (139, 289, 229, 279, 165))],
        [
            ("train", (1092, 2218, 1624, 2322, 1288)),
            ("dev", (139, 289, 229, 279, 165)),
            ("test", (279, 633, 389, 510, 399)),
        ],
    ),
)
def test_the_treebank_is_read_whole(name, counts):
    if "ELMORE_DATA" not in os.environ:
        pytest.skip("ELMORE_DATA is not set: the Stanford Sentiment Treebank is not here")
    path = Path(os.environ["ELMORE_DATA"]) / "tasks" / "sst" / f"{name}.txt.xz"
    result = Counter(example.label for example in read_trees(path))
    assert tuple(result[label] for label in FIVE) == counts
    assert result.total() == {"train": 8544, "dev": 1101, "test": 2210}[name]
    two = Counter(example.label for example in read_trees(path, classes=2))
    assert two == {"negative": counts[0] + counts[1], "positive": counts[3] + counts[4]}
    assert two.total() == {"train": 6920, "dev": 872, "test": 1821}[name]


def test_an_example_is_known_by_what_it_holds():
    assert (
        SentimentExample("neutral", ["a"])
        == SentimentExample("neutral", ["a"])
        != SentimentExample("positive", ["a"])
    )
