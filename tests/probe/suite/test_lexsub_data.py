"""SemEval-2007's files: candidates of a lemma, counts of annotators, the word in its sentence."""

import pytest

from elmore.errors import DataError
from elmore.probe.suite.lexsub_data import read_lexsub
from tests.support import toy_suite


def test_targets_are_read_as_they_are_published(tmp_path):
    toy_suite.write_lexsub(tmp_path / "lexsub")
    data = read_lexsub(tmp_path / "lexsub")
    (dev,), (test,) = data.dev, data.test
    assert dev.sentence == test.sentence == ("The", "old", "bridge", "sleeps", '"', ".")
    assert dev.position == 1
    assert test.candidates == [("former",), ("ancient",), ("very", "old"), ("quiet",)]
    assert dev.weights.tolist() == [0, 3, 1, 0]
    assert test.weights.tolist() == [2, 0, 0, 0]
    assert data.accepted == 1  # one annotator is enough


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("lst_test.gold", "old.a 301 former 2;\n", "expected a lemma, a number, '::'"),
        ("lst_test.gold", "old.a 301 :: former;\n", "expected a lemma, a number, '::'"),
        ("lst_test.gold", "old.a 301 :: \n", "expected a lemma, a number, '::'"),
        ("lst_test.gold", "old.a 7 :: former 2;\n", "expected '7' in lst_all.xml"),
        ("lst_test.gold", "new.a 301 :: former 2;\n", "and 'new.a' in lst.gold.candidates"),
        ("lst_test.gold", "", "found no target"),
        ("lst.gold.candidates", "old.a former\n", "expected a lemma, '::' and its candidates"),
        ("lst_all.xml", '<instance id="1">\n<context>The old</context>', "between <head> and"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, name, text, why):
    toy_suite.write_lexsub(tmp_path / "lexsub")
    (tmp_path / "lexsub" / name).write_text(text)
    with pytest.raises(DataError, match=why):
        read_lexsub(tmp_path / "lexsub")
