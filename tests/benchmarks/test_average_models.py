"""benchmarks/average_models.py: each weight is the average, and the warm state is that of them."""

import importlib
from dataclasses import replace

import pytest
import torch

from elmore.text.vocabulary import ELMO_MARKS, Vocabulary
from elmore.weights import folder, warm
from elmore.weights.bundle import Bundle
from tests.support.scripts import ROOT
from tests.support.tiny_model import save_model


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("average_models")


def load(tmp_path, seed: int) -> Bundle:
    return warm.add_warm_state(folder.load(tmp_path / save_model(tmp_path / f"m{seed}", seed)))


def test_it_averages_weights_and_computes_the_warm_state_anew(script, tmp_path):
    before, after = load(tmp_path, 0), load(tmp_path, 1)
    first, second = (
        {k: v.clone() for k, v in b.model.state_dict().items()} for b in (before, after)
    )
    result = script.average(before, after, 0.75)
    for name, weight in result.model.state_dict().items():
        torch.testing.assert_close(weight, 0.25 * first[name] + 0.75 * second[name])
    expected = warm.add_warm_state(replace(result, warm_state=None))
    torch.testing.assert_close(result.warm_state.cell, expected.warm_state.cell)


def test_models_of_other_words_are_refused(script, tmp_path):
    before, after = load(tmp_path, 0), load(tmp_path, 1)
    words = Vocabulary((ELMO_MARKS.begin, ELMO_MARKS.end, ELMO_MARKS.unknown, "word"))
    with pytest.raises(SystemExit, match="differ in shape or vocabulary"):
        script.average(replace(before, vocabulary=words), after, 0.5)
