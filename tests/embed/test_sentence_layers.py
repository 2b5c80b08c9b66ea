"""Cloze vectors are what the definition says: the top layer on both sides of each word."""

import numpy as np
import pytest
import torch

import elmore
from elmore.embed.embedder import Embedder
from elmore.errors import ConfigError
from elmore.serve.engine import EmbedWork, Engine
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm

TEXTS = [["The", "bank", "of", "the", "river"], ["naïve"], [], ["x" * 70, "日本"], ["a"] * 300]


@pytest.fixture(scope="module")
def elmo(tmp_path_factory) -> Embedder:
    settings = bilm_options(n_layers=3)
    weights = bilm_weights(settings, np.random.default_rng(0))
    return elmore.load(*write_bilm(tmp_path_factory.mktemp("model"), settings, weights))


def define_cloze(elmo: Embedder, words: list[str], state=None) -> np.ndarray:
    """The definition, from one run of the network in torch with both boundary tokens."""
    with torch.no_grad():
        stack, _ = elmo.bundle.run([words], state)
    top, width = stack.states[-1, 0].numpy(), elmo.width // 2
    return np.concatenate([top[:-2, :width], top[2:, width:]], axis=1)


def assert_cloze(elmo: Embedder, vectors: list[np.ndarray], state=None) -> None:
    for words, found in zip(TEXTS, vectors, strict=True):
        np.testing.assert_allclose(found, define_cloze(elmo, words, state), rtol=0, atol=1e-5)


@pytest.mark.parametrize("start", ["zero", "warm"])
def test_cloze_vectors_are_the_top_layer_on_both_sides(elmo, start):
    own = Embedder(elmo.bundle, device="cpu", initial_state=start)
    assert_cloze(own, [text.vectors for text in own.embed(TEXTS, layers="cloze")], own._start)
    assert_cloze(own, [text.vectors for text in own.stream(TEXTS, layers="cloze")], own._start)


def test_torch_gives_the_cloze_vectors_of_native_code(elmo):
    own = Embedder(elmo.bundle, device="cpu")
    own.bundle.model.use_backend("eager")
    assert own.runtime.fixed_shapes
    assert_cloze(elmo, [text.vectors for text in own.embed(TEXTS, layers="cloze")])


def test_a_server_gives_the_cloze_vectors_of_the_embedder(elmo):
    engine = Engine(elmo)
    engine.add({7: EmbedWork(TEXTS, "cloze")})
    result: dict = {}
    while not result:
        result = engine.step()
    assert_cloze(elmo, result[7])


def test_a_stateful_embedder_takes_the_boundary_of_each_row(elmo):
    stateful = Embedder(elmo.bundle, device="cpu", stateful=True)
    reference = Embedder(elmo.bundle, device="cpu", stateful=True)
    width = elmo.width // 2
    for _ in range(2):
        found = stateful.embed(TEXTS[:4], layers="cloze")
        with torch.no_grad():
            top = reference.run(TEXTS[:4]).states[-1].numpy()
        for row, text in zip(top, found, strict=True):
            end = len(text.tokens)
            np.testing.assert_allclose(text.vectors[:, :width], row[:end, :width], atol=1e-6)
            np.testing.assert_allclose(text.vectors[:, width:], row[2 : end + 2, width:], atol=1e-6)


def test_the_word_itself_changes_nothing(elmo):
    vectors = [
        elmo.embed([["the", word, "of", "it"]], layers="cloze")[0].vectors
        for word in ("bank", "reconstruction")
    ]
    np.testing.assert_array_equal(vectors[0][1], vectors[1][1])
    assert (vectors[0][[0, 2]] != vectors[1][[0, 2]]).any()


def test_each_sentence_of_a_text_has_boundaries_of_its_own(elmo):
    (text,) = elmo.embed(["It is. So be it."], layers="cloze", split_sentences=True)
    alone = [elmo.embed([words], layers="cloze")[0].vectors for words in ("It is.", "So be it.")]
    np.testing.assert_array_equal(text.vectors, np.concatenate(alone))


def test_a_list_of_layers_stacks_their_vectors(elmo):
    choices = [0, "cloze", "top", "average"]
    for text, *single in zip(
        elmo.embed(TEXTS, layers=choices),
        *(elmo.embed(TEXTS, layers=choice) for choice in choices),
        strict=True,
    ):
        np.testing.assert_array_equal(text.vectors, [one.vectors for one in single])


@pytest.mark.parametrize("layers", [[], ["all"], [1, "all"], [7], [["top"]], ("top",)])
def test_a_list_that_is_not_of_layers_is_refused(elmo, layers):
    with pytest.raises(ConfigError, match="layers"):
        elmo.embed(TEXTS, layers=layers)
