"""The module for sentence-transformers: `encode` gives what `Embedder.encode` gives."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import elmore
from elmore.embed.embedder import Embedder
from elmore.errors import ConfigError, DataError
from tests.support.fake_checkpoints import bilm_options, bilm_weights, many_langs, write_bilm
from tests.support.toy_pooling import make_pooling

sentence_transformers = pytest.importorskip(
    "sentence_transformers", reason="sentence-transformers is not there: make test-integrations"
)

from sentence_transformers.sentence_transformer.modules import Pooling  # noqa: E402

from elmore.integrations.huggingface import ElmoModel, ElmoTokenizer  # noqa: E402
from elmore.integrations.sentence_transformers import (  # noqa: E402 -- what it needs may be missing
    ElmoModule,
    ElmoPooling,
)

TEXTS = ["I left it at the bank .", "", "Naïve 日本 🙂 " + "x" * 70, "don't", "One two " * 20]


@pytest.fixture(params=["bytes", "lexicon"])
def elmo(request, tmp_path, rng) -> Embedder:
    if request.param == "lexicon":
        many_langs(tmp_path / "model", rng)
        return elmore.load(tmp_path / "model", device="cpu")
    options = bilm_options()
    sources = write_bilm(tmp_path / "model", options, bilm_weights(options, rng))
    return elmore.load(*sources, device="cpu")


def made(module: ElmoModule, pooling: str = "mean"):
    pool = Pooling(module.get_embedding_dimension(), pooling)
    return sentence_transformers.SentenceTransformer(modules=[module, pool], device="cpu")


def saved_and_loaded(module: ElmoModule, folder) -> ElmoModule:
    made(module).save(str(folder))
    model = sentence_transformers.SentenceTransformer(
        str(folder), trust_remote_code=True, device="cpu"
    )
    return model[0]


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_texts_have_the_vectors_of_the_embedder_also_after_saving(elmo, pooling, tmp_path):
    model = made(ElmoModule(elmo), pooling)
    expected = elmo.encode(TEXTS, pool=pooling)
    np.testing.assert_allclose(model.encode(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(model.encode(TEXTS[0]), expected[0], atol=1e-5)
    model.save(str(tmp_path / "saved"))
    again = sentence_transformers.SentenceTransformer(
        str(tmp_path / "saved"), trust_remote_code=True, device="cpu"
    )
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))


def test_texts_without_words_alone_are_zeros_with_any_pooling(elmo):
    for pooling in Pooling.POOLING_MODES:
        assert not made(ElmoModule(elmo), pooling).encode(["", " "]).any()


def test_a_text_cannot_be_cut_to_nothing(elmo):
    with pytest.raises(ConfigError, match="max_seq_length must be at least 1, or None, found 0"):
        ElmoModule(elmo, max_seq_length=0)


def test_a_pooling_of_the_model_gives_the_vectors_of_encode_also_after_saving(elmo, tmp_path):
    toy = Embedder(replace(elmo.bundle, poolings={"toy": make_pooling(elmo)}), device="cpu")
    module = ElmoModule(toy)
    layers = [module, module.pooling()]
    model = sentence_transformers.SentenceTransformer(modules=layers, device="cpu")
    expected = toy.encode(TEXTS)
    assert model.get_embedding_dimension() == expected.shape[1]
    np.testing.assert_allclose(model.encode(TEXTS), expected, rtol=1e-4, atol=1e-4)
    model.save(str(tmp_path / "saved"))
    again = sentence_transformers.SentenceTransformer(
        str(tmp_path / "saved"), trust_remote_code=True, device="cpu"
    )
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))
    assert isinstance(module.pooling("mean"), Pooling)
    with pytest.raises(ConfigError, match="'toy'"):
        module.pooling("other")
    with pytest.raises(ConfigError, match="weighs words by frequency"):
        ElmoPooling(replace(make_pooling(elmo), frequencies={"the": 0.1}))


def test_a_loaded_module_has_the_poolings_of_the_model_that_was_saved(elmo, tmp_path):
    poolings = {"toy": make_pooling(elmo), "other": replace(make_pooling(elmo), attention=None)}
    toy = Embedder(replace(elmo.bundle, poolings=poolings), device="cpu")
    again = saved_and_loaded(ElmoModule(toy), tmp_path / "saved")
    for name in (None, "toy", "other", "mean"):
        layers = [again, again.pooling(name)]
        model = sentence_transformers.SentenceTransformer(modules=layers, device="cpu")
        expected = toy.encode(TEXTS, pool=name)
        np.testing.assert_allclose(model.encode(TEXTS), expected, rtol=1e-4, atol=1e-4)


def test_a_module_saved_over_another_has_its_own_poolings(elmo, tmp_path):
    toy = Embedder(replace(elmo.bundle, poolings={"toy": make_pooling(elmo)}), device="cpu")
    saved_and_loaded(ElmoModule(toy), tmp_path / "saved")
    again = saved_and_loaded(ElmoModule(elmo), tmp_path / "saved")
    assert isinstance(again.pooling(), Pooling)


def test_a_module_saved_without_its_poolings_asks_for_the_name_of_one(elmo, tmp_path):
    saved_and_loaded(ElmoModule(elmo), tmp_path / "saved")
    (tmp_path / "saved" / "poolings.npz").unlink()  # as earlier versions saved it
    again = saved_and_loaded(ElmoModule.load(str(tmp_path / "saved")), tmp_path / "again")
    with pytest.raises(ConfigError, match="saved without poolings"):
        again.pooling()
    assert again.pooling("max").pooling_mode == "max"


def test_a_network_does_not_get_the_poolings_of_the_bundled_model():
    module = ElmoModule(model=ElmoModel.from_elmore())
    with pytest.raises(ConfigError, match="the poolings of this model are not known"):
        module.pooling()
    assert isinstance(module.pooling("mean"), Pooling)


def test_a_tokenizer_of_another_model_is_refused(tmp_path, rng):
    many_langs(tmp_path / "model", rng)
    model = ElmoModel.from_elmore(tmp_path / "model")
    with pytest.raises(ConfigError, match="the tokenizer does not fit this model"):
        ElmoModule(model=model)
    ElmoModule(model=model, tokenizer=ElmoTokenizer.from_elmore(tmp_path / "model"))


def test_each_word_has_its_vector(elmo):
    texts = [text for text in TEXTS if text]
    result = made(ElmoModule(elmo)).encode(texts, output_value="token_embeddings")
    for vectors, sentence in zip(result, elmo.embed(texts), strict=True):
        np.testing.assert_allclose(vectors.numpy(), sentence.vectors, atol=1e-5)


def test_words_may_be_given_prompts_are_read_and_long_texts_cut(elmo):
    model = made(ElmoModule(elmo, max_seq_length=3))
    words = [["One", "two"], ["three"]]
    np.testing.assert_allclose(model.encode(words), elmo.encode(words), atol=1e-5)
    cut = model.encode(["One two three four"])
    np.testing.assert_allclose(cut, elmo.encode(["One two three"]), atol=1e-5)
    for text in ("three", ["three"]):
        prompted = model.encode([text], prompt="One two ")
        np.testing.assert_allclose(prompted, elmo.encode(["One two three"]), atol=1e-5)
    model[1].include_prompt = False
    without = model.encode(["three"], prompt="One two ")
    last = elmo.embed(["One two three"])[0].vectors[2:]
    np.testing.assert_allclose(without, last, atol=1e-5)
    without = model.encode([["three"]], prompt="One two ")
    np.testing.assert_allclose(without, last, atol=1e-5)


def test_what_is_not_a_text_is_refused_with_a_prompt_too(elmo):
    for prompt in (None, "One "):
        with pytest.raises(DataError, match="expected a string or a list of tokens, found 'None'"):
            ElmoModule(elmo).preprocess([None], prompt=prompt)


@pytest.mark.parametrize("freeze", [True, False])
def test_a_loss_reaches_what_learns(elmo, freeze):
    model = made(ElmoModule(elmo, freeze=freeze)).train()
    features = model.preprocess(["One two", "three"])
    vectors = model(features)["sentence_embedding"]
    torch.nn.functional.cosine_similarity(vectors[0], vectors[1], dim=0).backward()
    module = model[0].model
    assert module.mix.weights.grad.any()
    assert any(weight.grad is not None for weight in module.bilm.parameters()) is not freeze


def test_the_bundled_model_finds_what_is_alike():
    model = made(ElmoModule())
    texts = ["A man plays the guitar .", "Someone plays a violin .", "Prices rose by two percent ."]
    result = model.similarity(model.encode(texts), model.encode(texts))
    assert result[0, 1] > result[0, 2]
