"""Swords' files: candidates, votes, and the word in its sentence."""

import json

import pytest

from elmore.errors import DataError
from elmore.probe.suite.swords_data import read_swords
from tests.support import toy_suite


def test_targets_are_read_as_they_are_published(tmp_path):
    toy_suite.write_swords(tmp_path / "swords")
    data = read_swords(tmp_path / "swords")
    (target,) = data.test
    assert data.dev[0].sentence == target.sentence
    assert target.sentence[target.position] == "old"
    assert target.sentence[0] == "The"  # the sentence of the word, not the one before
    assert target.sentence[-2:] == ("quietly", ".")
    assert target.candidates == [("ancient",), ("former",), ("quixotic",), ("very", "young")]


def test_the_weight_of_a_candidate_is_the_fraction_of_annotators_that_accept_it(tmp_path):
    toy_suite.write_swords(tmp_path / "swords")
    (target,) = read_swords(tmp_path / "swords").test
    assert target.weights.tolist() == pytest.approx([2 / 3, 1 / 2, 0, 0])  # UNSURE is no vote


def change(folder, table, key, **values):
    path = folder / "swords-v1.1_test.json"
    data = json.loads(path.read_text())
    if key is None:
        data[table] = values["to"]
    elif isinstance(data[table][key], dict):
        data[table][key] |= values
    else:
        data[table][key] = values["to"]
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("table", "key", "values", "why"),
    [
        ("targets", None, {"to": []}, "expected an object with the object 'targets'"),
        ("targets", None, {"to": {}}, "'t:1': expected an entry with 'target'"),
        ("targets", "t:1", {"offset": 18}, "is not at its offset 18"),
        ("targets", "t:1", {"offset": -7}, "is not at its offset -7"),
        ("targets", "t:1", {"offset": True}, "expected an entry with 'offset'"),
        ("targets", "t:1", {"target": ""}, "is not at its offset"),
        ("targets", "t:1", {"context_id": "c:2"}, "'c:2': expected an entry with 'context'"),
        ("contexts", "c:1", {"context": 3}, "expected an entry with 'context'"),
        ("substitutes", "s:former", {"substitute": None}, "expected an entry with 'substitute'"),
        ("substitute_labels", "s:former", {"to": ["MAYBE"]}, "expected labels such as TRUE"),
        ("substitute_labels", "s:former", {"to": [["TRUE"]]}, "expected labels such as TRUE"),
        ("substitute_labels", None, {"to": {}}, "expected labels such as TRUE"),
        ("substitutes", None, {"to": {}}, "found no target with an accepted substitute"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, table, key, values, why):
    toy_suite.write_swords(tmp_path / "swords")
    change(tmp_path / "swords", table, key, **values)
    with pytest.raises(DataError, match=why):
        read_swords(tmp_path / "swords")


def test_two_versions_of_a_split_are_refused(tmp_path):
    toy_suite.write_swords(tmp_path / "swords")
    (tmp_path / "swords" / "swords-v1.0_dev.json").write_text("{}")
    with pytest.raises(DataError, match=r"expected one file swords-\*_dev\.json in it, found 2"):
        read_swords(tmp_path / "swords")
