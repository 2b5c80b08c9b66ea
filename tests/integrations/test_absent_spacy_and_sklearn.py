"""A missing extra is named where it is needed; this runs with and without them installed."""

import importlib
import sys

import pytest


@pytest.mark.parametrize(
    ("package", "sentence"),
    [
        ("spacy", "elmore.integrations.spacy needs spaCy: pip install 'elmore[spacy]'"),
        (
            "sklearn",
            "elmore.integrations.sklearn needs scikit-learn: pip install 'elmore[sklearn]'",
        ),
    ],
)
def test_a_missing_framework_is_one_sentence_that_names_the_extra(monkeypatch, package, sentence):
    for name in [package, *(key for key in sys.modules if key.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, f"elmore.integrations.{package}", raising=False)
    with pytest.raises(ImportError) as found:
        importlib.import_module(f"elmore.integrations.{package}")
    assert str(found.value) == sentence
