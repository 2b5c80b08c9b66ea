import json

import pytest

from elmore.errors import DataError
from elmore.tasks import registry
from elmore.tasks.snli.data import SentencePair


def snli(*overrides: str):
    kind = registry.find_task("snli")
    return kind(registry.load_recipe(kind, None, overrides))


def test_two_sentences_are_typed_with_a_tab_between_them():
    result = snli().example_from_text("A man runs .\tHe moves", tokenized=True)
    assert snli().sentences(result) == [["A", "man", "runs", "."], ["He", "moves"]]


@pytest.mark.parametrize(("text", "count"), [("A man runs.", 0), ("a\tb\tc", 2), ("", 0)])
def test_anything_else_is_reported_in_one_sentence(text, count):
    with pytest.raises(DataError, match=rf"a tab between them, found {count} tabs in '"):
        snli().example_from_text(text, tokenized=True)


def test_a_label_that_training_did_not_have_is_counted_as_wrong():
    pairs = [SentencePair("neutral", ["a"], ["b"]), SentencePair("entailment", ["a"], ["b"])]
    assert snli().collect_labels(pairs[:1]) == ["neutral"]
    assert snli().score(pairs, ["neutral", "neutral"]) == {"accuracy": 50.0}


def test_a_label_nobody_named_is_refused_with_its_line(tmp_path):
    path = tmp_path / "test.tsv"
    path.write_text("gold_label\tsentence1\tsentence2\nentails\ta\tb\n")
    with pytest.raises(DataError, match=r"test\.tsv:2: expected a label of .* found 'entails'"):
        snli().read_examples(path)
    assert snli('data.labels=["entails"]').read_examples(path) == [
        SentencePair("entails", ["a"], ["b"])
    ]


def test_a_prediction_is_shown_and_can_be_read_again(tmp_path):
    pair = SentencePair("neutral", ["a", "b"], ["c"])
    assert snli().format_text(pair, "neutral") == "neutral\ta b\tc"
    path = tmp_path / "found.jsonl"
    path.write_text(json.dumps(snli().to_dict(pair, "neutral")))
    assert snli().read_examples(path) == [pair]
