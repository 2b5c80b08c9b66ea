"""What `test.json` says of a task: its scores, what it confused, where it was wrong."""

import pytest

from elmore.errors import ConfigError, DataError
from elmore.tasks import registry, results
from elmore.tasks.data.columns import TaggedSentence


def ner():
    kind = registry.find_task("ner")
    return kind(registry.load_recipe(kind))


def tagged() -> tuple[list[TaggedSentence], list[list[str]]]:
    examples = [
        TaggedSentence(["Ann", "Lee", "saw", "Rome"], ["B-PER", "I-PER", "O", "B-LOC"]),
        TaggedSentence(["Bo", "left"], ["B-PER", "O"]),
    ]
    return examples, [["B-PER", "B-PER", "O", "B-PER"], ["O", "O"]]


def test_tags_are_compared_without_their_place_in_the_span():
    found = results.collect(ner(), {"f1": 50.0}, *tagged())
    pairs = {(one.gold, one.predicted): one.count for one in found.confusion}
    assert pairs == {("PER", "PER"): 2, ("PER", "O"): 1, ("LOC", "PER"): 1, ("O", "O"): 2}
    assert [(one.gold, one.predicted, one.text) for one in found.errors] == [
        ("LOC", "PER", "Ann Lee saw [Rome]"),
        ("PER", "O", "[Bo] left"),
    ]


def test_the_scores_of_a_label_are_by_their_definition():
    scores = results.label_scores(results.collect(ner(), {}, *tagged()).confusion)
    assert list(scores) == ["PER", "O", "LOC"]
    assert scores["PER"] == pytest.approx((200 / 3, 200 / 3, 200 / 3, 3))
    assert scores["O"] == pytest.approx((200 / 3, 100, 80, 2))
    assert scores["LOC"] == (0, 0, 0, 1)


def test_results_come_back_as_they_were_written(tmp_path):
    found = results.collect(ner(), {"f1": 50.0}, *tagged())
    results.write(tmp_path / "test.json", found)
    assert results.read(tmp_path / "test.json") == found


@pytest.mark.parametrize(
    ("text", "error", "sentence"),
    [
        ('{"format": 2}', DataError, "format 2 is newer"),
        ('{"format": 1, "task": 3}', ConfigError, "test.json"),
        ("[]", ConfigError, "expected a JSON object"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path, text, error, sentence):
    (tmp_path / "test.json").write_text(text)
    with pytest.raises(error, match=sentence):
        results.read(tmp_path / "test.json")
