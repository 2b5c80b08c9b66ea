"""What the package promises to do offline, with the model that it brings."""

import numpy as np
import pytest

import elmore
from elmore import config as config_files
from elmore.embed.embedder import Embedder
from elmore.lm import config, scoring
from elmore.lm.evaluate import evaluate
from elmore.lm.finetune import finetune
from elmore.lm.substitutes import predict_substitutes
from elmore.weights import pretrained
from tests.support import toy_corpus

WORDS = ["The", "team", "won", "the", "match", "against", "Spain", "."]


@pytest.fixture(scope="module")
def english():
    return pretrained.load()


def test_the_trained_model_predicts_the_next_word(english):
    (right, wrong) = scoring.score(english, [WORDS, WORDS[::-1]])
    assert np.mean(right.forward) > np.mean(wrong.forward) + 1
    assert np.mean(right.backward) > np.mean(wrong.backward) + 1


def test_the_bundled_model_predicts_plausible_substitutes(english):
    sentence = ["The", "team", "won", "the", "match", "against", "Spain", "."]
    (result,) = predict_substitutes(english, sentence, [4])
    assert {"game", "match"} <= {word for word, _ in result.both}


@pytest.mark.slow
def test_the_bundled_model_is_evaluated_and_fine_tuned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "english").mkdir()  # is not taken for it
    text = ["The river rose by two metres .", "A red rose stood on the table ."] * 20
    shards = toy_corpus.prepare_corpus(tmp_path, "shards", text, valid=text[:2])
    before = evaluate(None, shards.path, device="cpu")
    assert before.perplexity < 1000
    recipe = config.read_finetune_recipe(
        overrides=["stream.batch_size=2", "stream.unroll_steps=8", "train.steps=2", "train.lr=1e-3"]
    )
    list(finetune([], shards.path, tmp_path / "run", recipe, device="cpu"))
    assert config_files.read_json(tmp_path / "run" / "recipe.json")["model"] == ["english"]
    parent = pretrained.load(tmp_path / "run").card.training["from"]
    assert (parent["name"], parent["package"]) == ("english", f"elmore {elmore.__version__}")
    after = evaluate(tmp_path / "run", shards.path, device="cpu")
    assert after.perplexity < before.perplexity


def test_whitened_vectors_of_the_bundled_model_part_senses_better_than_its_top_layer(english):
    elmo = Embedder(english, device="cpu")
    uses = [
        ["The", "boat", "lay", "on", "the", "bank", "of", "the", "river", "."],
        ["We", "walked", "along", "the", "muddy", "bank", "of", "the", "stream", "."],
        ["He", "put", "the", "money", "into", "the", "bank", "."],
        ["She", "asked", "the", "bank", "for", "a", "loan", "."],
    ]

    def margin(layers: str) -> float:
        vectors = [
            text.vectors[text.tokens.index("bank")] for text in elmo.embed(uses, layers=layers)
        ]
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines = unit @ unit.T
        return float((cosines[0, 1] + cosines[2, 3]) / 2 - cosines[:2, 2:].mean())

    assert margin("whitened") > margin("top") > 0
