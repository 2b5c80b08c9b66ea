import gzip
import json
import logging
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.errors import DataError
from elmore.tasks.snli.data import SentencePair, read_pairs, tokenize_pair_text
from tests.support.sweeps import pick

HEADER = "gold_label\tsentence1\tsentence2\n"
PAIR = SentencePair("entailment", ["A", "man", "runs", "."], ["He", "moves"])


def file(tmp_path: Path, text: str, name: str = "pairs.tsv") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_three_columns_are_read_and_tokenised(tmp_path):
    path = file(tmp_path, HEADER + "entailment\tA man runs.\tHe moves\n\n")
    assert read_pairs(path) == [PAIR]


def test_tokenised_text_is_split_at_spaces_alone(tmp_path):
    path = file(tmp_path, HEADER + "neutral\tA man runs.\t( He )\n")
    assert read_pairs(path, tokenize=str.split) == [
        SentencePair("neutral", ["A", "man", "runs."], ["(", "He", ")"])
    ]


def test_the_table_of_the_release_is_read_with_or_without_its_last_columns(tmp_path):
    names = ["gold_label", "sentence1_binary_parse", "sentence2_binary_parse"]
    names += ["sentence1_parse", "sentence2_parse", "sentence1", "sentence2", "captionID"]
    names += ["pairID", "label1", "label2", "label3", "label4", "label5"]
    row = ["entailment", "( x )", "( x )", "(ROOT x)", "(ROOT x)", "A man runs.", "He moves"]
    row += ["34", "34r1e", "entailment"]
    lines = ["\t".join(line) for line in (names, [*row, "", "", "", ""], row)]
    assert read_pairs(file(tmp_path, "\n".join(lines))) == [PAIR, PAIR]


@pytest.mark.parametrize(
    ("header", "line"),
    [
        (
            "pair_ID\tsentence_A\tsentence_B\tentailment_label\trelatedness_score\tSemEval_set",
            "1\tA man runs.\tHe moves\tENTAILMENT\t4.5\tTRAIN",
        ),
        (
            "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment",
            "1\tA man runs.\tHe moves\t4.5\tENTAILMENT",
        ),
    ],
)
def test_sick_is_read_in_both_its_forms(tmp_path, header, line):
    assert read_pairs(file(tmp_path, f"{header}\r\n{line}\r\n")) == [PAIR]


@pytest.mark.parametrize("name", ["pairs.jsonl", "pairs.jsonl.gz"])
def test_jsonl_is_read_packed_or_not(tmp_path, name):
    row = {"annotator_labels": ["x"], "gold_label": "entailment"}
    row |= {"sentence1": "A man runs.", "sentence2": "He moves"}
    text = (json.dumps(row) + "\n\n") * 2
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    assert read_pairs(path) == [PAIR, PAIR]


def test_several_files_have_a_header_each(tmp_path):
    for name in ("a.tsv", "b.tsv"):
        file(tmp_path, HEADER + "entailment\tA man runs.\tHe moves\n", name)
    assert read_pairs(tmp_path / "*.tsv") == [PAIR, PAIR]


def test_pairs_without_a_gold_label_are_left_out_and_counted(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    row = "\tA man runs.\tHe moves\n"
    path = file(tmp_path, f"{HEADER}-{row}entailment{row}-{row}")
    assert read_pairs(path) == [PAIR]
    assert "left out 2 pairs without a gold label" in caplog.text
    with pytest.raises(DataError, match=r"pairs\.tsv: no pair with a label found"):
        read_pairs(file(tmp_path, f"{HEADER}-{row}"))


def test_other_labels_can_be_named(tmp_path):
    path = file(tmp_path, HEADER + "not_entailment\ta\tb\n")
    assert read_pairs(path, labels=("not_entailment", "x")) == [
        SentencePair("not_entailment", ["a"], ["b"])
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"pairs.tsv: no pair with a label found; expected a table or .jsonl with gold_label"),
        (HEADER, r"pairs.tsv: no pair with a label found"),
        ("neutral\ta\tb\n", r"pairs.tsv:1: expected gold_label, .* found 'neutral, a, b'"),
        ("gold_label\tsentence1\tsentence_B\n", r"pairs.tsv:1: expected gold_label"),
        (HEADER + "neutral\ta\tb\nneutral\ta\n", r"pairs.tsv:3: expected 3 columns, .* found 2"),
        (HEADER + "neutral\ta\tb\tc\n", r"pairs.tsv:2: expected 3 columns, .* found 4"),
        (HEADER + "maybe\ta\tb\n", r"pairs.tsv:2: expected a label of contradiction, .* 'maybe'"),
        (HEADER + "neutral\t \tb\n", r"pairs.tsv:2: the first sentence is empty"),
        (HEADER + "neutral\ta\t\n", r"pairs.tsv:2: the second sentence is empty"),
    ],
)
def test_a_bad_line_is_named(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_pairs(file(tmp_path, text))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no", r"pairs.jsonl:2: expected a JSON object, found 'no'"),
        ("[1]", r"pairs.jsonl:2: expected a JSON object, found '\[1\]'"),
        ('{"gold_label": "neutral"}', r"pairs.jsonl:2: expected gold_label, sentence1"),
        (
            '{"gold_label": 1, "sentence1": "a", "sentence2": "b"}',
            r"pairs.jsonl:2: expected three texts, found \[1, 'a', 'b'\]",
        ),
    ],
)
def test_a_bad_object_is_named(tmp_path, line, message):
    good = '{"gold_label": "neutral", "sentence1": "a", "sentence2": "b"}'
    with pytest.raises(DataError, match=message):
        read_pairs(file(tmp_path, f"{good}\n{line}\n", "pairs.jsonl"))


def test_a_table_of_another_kind_is_named(tmp_path):
    (tmp_path / "pairs.parquet").write_bytes(b"")
    with pytest.raises(DataError, match=r"pairs\.parquet: expected lines of text, found a table"):
        read_pairs(tmp_path / "pairs.parquet")


@pytest.mark.parametrize("text", ["The women 's hats", "He 's here", "They 'll go", "WE 'RE"])
def test_a_detached_clitic_is_one_word(text):
    assert tokenize_pair_text(text) == text.split()
    assert tokenize_pair_text(text.replace(" '", "'")) == text.split()


@given(st.text(st.sampled_from("ab'’s .,-n t")))
def test_words_cover_a_text_except_for_whitespace(text):
    assert "".join(tokenize_pair_text(text)) == "".join(text.split())


@pytest.mark.parametrize(
    ("name", "number", "counts"),
    # contradiction, entailment, neutral
    pick(
        [("snli_dev", 9842, (3278, 3329, 3235))],
        [
            ("snli_train_subset", 75439, (18790, 30158, 26491)),
            ("snli_dev", 9842, (3278, 3329, 3235)),
            ("snli_test", 9824, (3237, 3368, 3219)),
        ],
    ),
)
def test_snli_is_read_whole(name, number, counts):
    if "ELMORE_DATA" not in os.environ:
        pytest.skip("ELMORE_DATA is not set: SNLI is not here")
    path = Path(os.environ["ELMORE_DATA"]) / "tasks" / "snli" / f"{name}.tsv.xz"
    pairs = read_pairs(path, tokenize=str.split)
    assert len(pairs) == number
    result = Counter(pair.label for pair in pairs)
    assert tuple(result[x] for x in ("contradiction", "entailment", "neutral")) == counts
    if name != "snli_train_subset":  # the others have been tokenised by somebody else
        changed = sum(a != b for a, b in zip(pairs, read_pairs(path), strict=True))
        assert changed < 0.003 * len(pairs)
