"""Parity with the vectors that other implementations published for their own tiny models."""

import json

import h5py
import numpy as np
import pytest
from numpy.testing import assert_allclose

import elmore

EXACT = {"rtol": 0, "atol": 1e-5}


@pytest.mark.parametrize(
    ("folder", "sentences"),
    [("allennlp", "sentences.json"), ("bilm-tf/model", "lm_embeddings_sentences.json")],
)
def test_all_thirty_sentences_give_the_stored_top_layer_with_carried_state(
    fixtures, folder, sentences
):
    path = fixtures / folder
    elmo = elmore.load(path / "options.json", path / "lm_weights.hdf5", stateful=True)
    rows = json.loads((path / sentences).read_text())
    stored = []
    for row in range(3):
        with h5py.File(path / f"lm_embeddings_{row}.hdf5") as file:
            stored.append([np.concatenate(list(file[str(i)][()]), axis=-1) for i in range(10)])
    for number in range(10):
        batch = elmo.embed([rows[row][number].split() for row in range(3)], layers="top")
        for row, sentence in enumerate(batch):
            assert_allclose(sentence.vectors, stored[row][number], **EXACT)


def test_the_token_cache_is_the_token_layer(fixtures):
    path = fixtures / "allennlp"
    elmo = elmore.load(path / "options.json", path / "lm_weights.hdf5")
    words = (path / "vocab_test.txt").read_text(encoding="utf-8").split()
    with h5py.File(path / "elmo_token_embeddings.hdf5") as file:
        cache = file["embedding"][()]
    layer = elmo.embed([words], layers=0)[0].vectors
    assert_allclose(layer, np.concatenate([cache, cache], axis=1), **EXACT)


def test_many_langs_gives_every_stored_layer_without_state(fixtures):
    path = fixtures / "many-langs"
    stored = np.load(path / "expected.npz")
    sentences = json.loads((path / "sentences.json").read_text(encoding="utf-8"))
    for number, sentence in enumerate(elmore.load(path).embed(sentences, layers="all")):
        assert_allclose(sentence.vectors, stored[str(number)], **EXACT)
