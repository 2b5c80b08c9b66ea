"""BLiMP's pairs: how they are read, and which sentence counts as preferred."""

import json

import pytest
import torch

from elmore.errors import DataError
from elmore.lm import scoring
from elmore.probe.suite import blimp
from elmore.probe.suite.blimp import MinimalPair, read_blimp, score_blimp
from tests.support import toy_suite


def pair(good: str, bad: str, field: str = "syntax", phenomenon: str = "order") -> MinimalPair:
    return MinimalPair(good.split(), bad.split(), field, phenomenon)


def test_pairs_are_read_as_they_are_published(tmp_path):
    toy_suite.write_blimp(tmp_path / "blimp")
    first, second, third = read_blimp(tmp_path / "blimp")
    assert first == MinimalPair(
        ["Two", "ships", "wait", "."], ["Two", "ships", "waits", "."], "syntax", "agreement"
    )
    assert second.good == ["A", "ship", "is", "n't", "here", "."]
    assert (third.field, third.phenomenon) == ("semantics", "quantifiers")


def test_a_field_that_is_spelled_in_two_ways_is_one(tmp_path):
    line = dict.fromkeys(blimp._FIELDS, "a")
    text = "".join(
        json.dumps({**line, "field": field}) + "\n"
        for field in ("syntax/semantics", "syntax_semantics")
    )
    (tmp_path / "a.jsonl").write_text(text)
    assert {pair.field for pair in read_blimp(tmp_path)} == {"syntax_semantics"}


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        json.dumps({"sentence_good": "A."}),
        json.dumps(dict.fromkeys(blimp._FIELDS, 3)),
        json.dumps(dict.fromkeys(blimp._FIELDS, " ")),
    ],
)
def test_a_line_that_is_no_pair_is_refused_with_its_place(tmp_path, line):
    (tmp_path / "a.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match=r"a\.jsonl:1: "):
        read_blimp(tmp_path)


def test_a_folder_without_pairs_is_refused(tmp_path):
    with pytest.raises(DataError, match="found no pair"):
        read_blimp(tmp_path)


PAIRS = [
    pair("two ships wait .", "two ships waits ."),
    pair("the river lies near the lake .", "the lake lies near the river river ."),
    pair("a storm comes", "comes a storm", "semantics"),
    pair("the same .", "the same ."),
]


@pytest.mark.parametrize("chunk", [1, 512])
def test_margins_are_differences_of_sums_of_log_probabilities(
    elmo, no_progress, monkeypatch, chunk
):
    monkeypatch.setattr(blimp, "_CHUNK", chunk)
    found = torch.cat([torch.from_numpy(x) for x in blimp._margins(elmo, PAIRS, no_progress)])
    for (forward, backward), each in zip(found.tolist(), PAIRS, strict=True):
        good, bad = scoring.score_batch(elmo.bundle, [each.good, each.bad])
        assert forward == pytest.approx(good.forward.sum() - bad.forward.sum(), abs=1e-4)
        assert backward == pytest.approx(good.backward.sum() - bad.backward.sum(), abs=1e-4)


def test_accuracy_counts_pairs_whose_acceptable_sentence_is_more_probable(elmo, no_progress):
    softmax = elmo.bundle.softmax
    with torch.no_grad():
        softmax.weight.zero_()
        softmax.bias.zero_()
        softmax.bias[int(elmo.bundle.vocabulary.ids(["river"])[0])] = 5.0
    pairs = [
        pair("the river .", "the lake .", "a", "x"),
        pair("the lake .", "the river .", "a", "y"),
        pair("a river", "a storm", "b", "y"),
        pair("a river", "a river", "b", "y"),  # a tie is not a preference
    ]
    scores = score_blimp(elmo, pairs, 0, no_progress)
    table = {(score.part, score.method): (score.score, score.n) for score in scores}
    for method in ("forward", "backward", "both"):
        assert table["all", method] == (0.5, 4)
        assert table["field a", method] == (0.5, 2)
        assert table["field b", method] == (0.5, 2)
        assert table["phenomenon x", method] == (1.0, 1)
        assert table["phenomenon y", method] == (pytest.approx(1 / 3), 3)
    assert {score.method for score in scores if score.chosen} == {"both"}
