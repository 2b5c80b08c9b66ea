"""SQuAD's scores beside those of torchmetrics, which has the official script built in."""

import json
import lzma
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.tasks.squad.metric import score

peer = pytest.importorskip(
    "torchmetrics.functional.text", reason="`make test-integrations` installs the peer"
)

words = st.sampled_from(["a", "An", "the", "Rome", "rome.", "New-York", "«x»", "U.S.", "-", "\t"])
texts = st.lists(words, max_size=5).map(" ".join) | st.text(max_size=8)


def theirs(expected: list[list[str]], found: list[str]) -> dict[str, float]:
    guesses = [{"prediction_text": text, "id": str(i)} for i, text in enumerate(found)]
    answers = [
        {"answers": {"text": some, "answer_start": [0] * len(some)}, "id": str(i)}
        for i, some in enumerate(expected)
    ]
    return {name: value.item() for name, value in peer.squad(guesses, answers).items()}


@given(st.lists(st.tuples(st.lists(texts, min_size=1, max_size=3), texts), min_size=1, max_size=4))
def test_the_scores_of_any_texts_are_those_of_torchmetrics(pairs):
    expected, result = map(list, zip(*pairs, strict=True))
    assert score(expected, result) == pytest.approx(theirs(expected, result), rel=1e-5)


def test_the_scores_of_real_answers_are_those_of_torchmetrics():
    if "ELMORE_DATA" not in os.environ:
        pytest.skip("ELMORE_DATA is not set: SQuAD is not here")
    path = Path(os.environ["ELMORE_DATA"]) / "tasks" / "squad" / "dev-v1.1.reconstructed.json.xz"
    data = json.loads(lzma.decompress(path.read_bytes()))["data"]
    asked = [q for article in data for p in article["paragraphs"] for q in p["qas"]]
    texts = [[answer["text"] for answer in question["answers"]] for question in asked]
    # one person's answer against those of the others
    pairs = [(some[1:], some[0]) for some in texts if len(some) > 1][:2000]
    expected, result = map(list, zip(*pairs, strict=True))
    assert score(expected, result) == pytest.approx(theirs(expected, result), rel=1e-5)
