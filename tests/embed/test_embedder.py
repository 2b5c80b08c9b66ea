import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import elmore
from elmore.errors import ConfigError, DataError
from elmore.model.lstm import backends
from elmore.model.saved_mix import SavedMix
from elmore.text.tokenizers import whitespace
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm
from tests.support.sweeps import pick
from tests.support.toy_pooling import make_pooling


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    settings = bilm_options(n_layers=3)
    weights = bilm_weights(settings, np.random.default_rng(0))
    return elmore.load(*write_bilm(tmp_path_factory.mktemp("model"), settings, weights))


def test_a_string_is_tokenised_and_offsets_lead_back_to_it(elmo):
    text = "I can't pay ."
    sentence = elmo.embed([text])[0]
    assert sentence.tokens == ["I", "ca", "n't", "pay", "."]
    assert [text[start:end] for start, end in sentence.offsets] == sentence.tokens
    assert sentence.vectors.shape == (5, elmo.width)


def test_tokens_are_taken_as_they_are(elmo):
    sentence = elmo.embed([["can't", "a b"]])[0]
    assert sentence.tokens == ["can't", "a b"]
    assert sentence.offsets is None


def test_what_a_prompt_shows_is_one_short_line(elmo):
    (sentence,) = elmo.embed(["word " * 500])
    for shown in (repr(elmo), repr(sentence), repr(make_pooling(elmo))):
        assert len(shown) < 120
        assert "\n" not in shown
    assert repr(sentence).endswith(f"...': float32 (500, {elmo.width})>")
    assert repr(elmo).endswith(f"{elmo.num_layers} layers of {elmo.width}, cpu>")


def test_another_tokenizer_may_be_given(elmo):
    assert elmore.Embedder(elmo.bundle, tokenizer=whitespace).embed(["I can't"])[0].tokens == [
        "I",
        "can't",
    ]


def test_layers_choose_from_the_stack(elmo):
    text = [["the", "bank"]]
    stack = elmo.embed(text, layers="all")[0].vectors
    assert stack.shape == (4, 2, elmo.width)

    def chosen(layers):
        return elmo.embed(text, layers=layers)[0].vectors

    np.testing.assert_array_equal(chosen("top"), stack[3])
    np.testing.assert_array_equal(chosen(1), stack[1])
    np.testing.assert_allclose(chosen("average"), stack.mean(axis=0), atol=1e-6)
    mix = SavedMix((0.0, 1.0, 2.0, 0.5), gamma=1.5)
    weights = np.exp(mix.weights) / np.exp(mix.weights).sum()
    np.testing.assert_allclose(chosen(mix), 1.5 * np.tensordot(weights, stack, 1), atol=1e-6)


@pytest.mark.parametrize("layers", [4, -1, "first", True, SavedMix((1.0,), 1.0)])
def test_layers_that_are_not_there_are_refused(elmo, layers):
    with pytest.raises(ConfigError, match=r"layers|weights"):
        elmo.embed([["a"]], layers=layers)


def test_max_layer_leaves_the_lower_layers_as_they_are(elmo):
    text = [["the", "bank"], ["of"]]
    lower = elmore.Embedder(elmo.bundle.up_to_layer(2))
    assert lower.num_layers == 3
    for short, full in zip(
        lower.embed(text, layers="all"), elmo.embed(text, layers="all"), strict=True
    ):
        np.testing.assert_array_equal(short.vectors, full.vectors[:3])
    with pytest.raises(ConfigError, match="max_layer must be between 1 and 3, found 4"):
        elmo.bundle.up_to_layer(4)


def test_a_lone_string_is_refused_because_it_would_be_read_as_letters(elmo):
    with pytest.raises(DataError, match=r"a list of texts is expected; pass \['a b'\]"):
        elmo.embed("a b")
    with pytest.raises(DataError, match="a list of texts is expected"):
        elmo.stream("a b")
    with pytest.raises(DataError, match="a list of texts is expected"):
        elmo.encode("a b")


def test_tokens_that_are_not_strings_are_refused(elmo):
    with pytest.raises(DataError, match="expected tokens that are strings, found 7"):
        elmo.embed([["a", 7]])


@pytest.mark.parametrize("texts", [[None], [b"abc"], [["a", None]], [[b"a"]], [7], [{"text": "a"}]])
def test_a_value_that_is_not_text_is_refused(elmo, texts):
    with pytest.raises(DataError, match="expected"):
        elmo.embed(texts)


@pytest.mark.parametrize("texts", [["a b"], [b"abc"], [["a", None]], [[b"a"]]])
def test_a_mixer_refuses_what_is_no_list_of_tokens(elmo, texts):
    with pytest.raises(DataError, match="expected"):
        elmore.Elmo(elmo)(texts)


def test_texts_may_come_from_any_iterable(elmo):
    texts = ["a b", "c"]
    for given in (iter(texts), tuple(texts), (text for text in texts)):
        assert [sentence.tokens for sentence in elmo.embed(given)] == [["a", "b"], ["c"]]


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "", "meta", "meta:0"])
def test_a_device_that_is_not_there_is_refused(elmo, device):
    with pytest.raises(ConfigError, match="cannot be used here"):
        elmo.to(device)


def test_device_and_precision_are_logged(elmo, caplog):
    with caplog.at_level("INFO", logger="elmore.embed"):
        elmore.Embedder(elmo.bundle, device="cpu")
    assert "embedding on device cpu in exact precision" in caplog.text


def test_threads_may_share_an_embedder(elmo):
    texts = [["the", "bank"] * n for n in range(1, 9)]
    expected = [elmo.embed([text])[0].vectors for text in texts]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            result = pool.map(lambda text: elmo.embed([text])[0].vectors, texts)
            for a, b in zip(result, expected, strict=True):
                np.testing.assert_array_equal(a, b)


def _embedded(elmo, texts):
    return elmo.embed(texts)


@pytest.mark.slow
def test_workers_of_a_data_loader_may_embed(elmo):
    texts = ["the bank", "a river", "of money"]
    loader = DataLoader(
        texts,
        batch_size=1,
        num_workers=1,
        collate_fn=partial(_embedded, elmo),
        multiprocessing_context="spawn",
    )
    for (sentence,), expected in zip(loader, elmo.embed(texts), strict=True):
        np.testing.assert_allclose(sentence.vectors, expected.vectors, atol=1e-5)


def test_an_unknown_initial_state_is_refused(elmo):
    with pytest.raises(ConfigError, match="must be 'zero' or 'warm', found 'hot'"):
        elmore.Embedder(elmo.bundle, initial_state="hot")


def test_an_embedder_can_be_pickled_to_a_worker(elmo):
    again = pickle.loads(pickle.dumps(elmo))
    text = [["the", "bank"]]
    np.testing.assert_array_equal(again.embed(text)[0].vectors, elmo.embed(text)[0].vectors)


def test_vectors_are_the_callers_own(elmo):
    first = elmo.embed([["a", "b"], ["c"]])
    first[0].vectors[:] = 0
    assert np.abs(elmo.embed([["a", "b"]])[0].vectors).max() > 0


def test_sentences_of_a_string_may_run_on_their_own(elmo):
    text = "It rained. We went home."
    (split,) = elmo.embed([text], split_sentences=True, layers="all")
    one, other = elmo.embed(["It rained.", "We went home."], layers="all")
    whole = np.concatenate([one.vectors, other.vectors], axis=1)
    np.testing.assert_allclose(split.vectors, whole, atol=1e-5)
    assert [text[start:end] for start, end in split.offsets] == split.tokens
    (together,) = elmo.embed([text], layers="all")
    assert np.abs(together.vectors - split.vectors).max() > 1e-4
    assert elmo.embed(["  "], split_sentences=True)[0].vectors.shape == (0, elmo.width)


def test_half_precision_is_the_rounded_vector(elmo):
    full, half = (elmo.embed([["a", "b"]], dtype=d)[0].vectors for d in ("float32", "float16"))
    np.testing.assert_array_equal(half, full.astype(np.float16))


class SpacyLike(NamedTuple):
    text: str
    idx: int


def test_any_callable_may_tokenize(elmo):
    text = "New York  is big"
    lists = elmore.Embedder(elmo.bundle, tokenizer=lambda text: ["New York", "is", "big"])
    assert lists.embed([text])[0].offsets == [(0, 8), (10, 12), (13, 16)]
    docs = elmore.Embedder(elmo.bundle, tokenizer=lambda text: [SpacyLike("is", 10)])
    assert docs.embed([text])[0].offsets == [(10, 12)]
    rewriting = elmore.Embedder(elmo.bundle, tokenizer=lambda text: ["``", "is"])
    assert rewriting.embed([text])[0].offsets is None


@pytest.mark.parametrize("tokenizer", [str.lower, lambda text: None])
def test_a_tokenizer_that_gives_no_words_is_refused(elmo, tokenizer):
    with pytest.raises(DataError, match="expected a list of words"):
        elmore.Embedder(elmo.bundle, tokenizer=tokenizer).embed(["A b"])


@pytest.mark.parametrize("kwargs", [{"token_budget": 0}, {"cache_megabytes": -1}])
def test_invalid_budgets_are_refused(elmo, kwargs):
    with pytest.raises(ConfigError, match="token_budget must be at least 1"):
        elmore.Embedder(elmo.bundle, **kwargs)


def test_an_unknown_number_format_is_refused(elmo):
    with pytest.raises(ConfigError, match="dtype must be"):
        elmo.embed(["a"], dtype="float64")


def test_vectors_align_with_another_tokenisation(elmo):
    (sentence,) = elmo.embed(["I can't stay"])
    assert sentence.tokens == ["I", "ca", "n't", "stay"]
    words = sentence.pool_to_spans([(0, 1), (2, 7), (8, 12)])
    np.testing.assert_array_equal(words[0], sentence.vectors[0])
    expected = (2 * sentence.vectors[1] + 3 * sentence.vectors[2]) / 5
    np.testing.assert_allclose(words[1], expected, rtol=1e-5)
    with pytest.raises(DataError, match="nothing to align with"):
        elmo.embed([["a"]])[0].pool_to_spans([(0, 1)])


def test_encode_pools_and_similarity_compares(elmo):
    texts = ["the bank", "a river", ""]
    vectors = elmo.encode(texts)
    for vector, sentence in zip(vectors[:2], elmo.embed(texts[:2]), strict=True):
        np.testing.assert_allclose(vector, sentence.vectors.mean(axis=0), rtol=1e-5)
    assert (vectors[2] == 0).all()
    assert elmo.encode([]).shape == (0, elmo.width)
    scores = elmo.similarity(texts, vectors)
    np.testing.assert_allclose(np.diag(scores), [1, 1, 0], atol=1e-6)
    pooling = elmo.learn_pooling(["the bank", "a river", "of money", "so it goes"], remove=1)
    alone = elmo.encode(["the bank"], pool=pooling)
    np.testing.assert_allclose(elmo.encode(texts, pool=pooling)[:1], alone, atol=1e-6)
    with pytest.raises(ConfigError, match="is not possible"):
        elmo.encode(texts, layers="all")


def test_a_stateful_embedder_does_not_stream(elmo):
    with pytest.raises(ConfigError, match="runs batches, not streams"):
        elmore.Embedder(elmo.bundle, stateful=True).stream(["a"])


@pytest.mark.parametrize("stateful", [False, True])
def test_a_list_that_is_filled_again_for_each_text_is_read_in_time(elmo, stateful):
    def texts():
        words = []
        for word in "abc":
            words[:] = [word]
            yield words

    embedder = elmore.Embedder(elmo.bundle, stateful=stateful)
    found = embedder.embed(texts())
    expected = elmore.Embedder(elmo.bundle, stateful=stateful).embed([["a"], ["b"], ["c"]])
    assert [text.tokens for text in found] == [["a"], ["b"], ["c"]]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.vectors, other.vectors)


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_the_model_that_was_given_is_neither_frozen_nor_moved_nor_switched(elmo, precision):
    bundle = replace(elmo.bundle, model=copy.deepcopy(elmo.bundle.model).requires_grad_(True))
    model = bundle.model.train()
    embedder = elmore.Embedder(bundle, device="cpu", precision=precision, initial_state="warm")
    before = embedder.embed([["the", "bank"]])[0].vectors
    embedder.embed([["the", "bank"]] * 100)
    embedder.bundle.model.to("meta")  # as `to` does: any device but that of the model
    assert embedder.device.type == "meta"
    assert all(weight.requires_grad and weight.is_cpu for weight in model.parameters())
    assert all(module.training for module in model.modules())
    again = elmore.Embedder(bundle, device="cpu", precision=precision, initial_state="warm")
    np.testing.assert_array_equal(again.embed([["the", "bank"]])[0].vectors, before)


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_an_embedder_follows_a_model_that_learns_in_place(elmo, precision):
    bundle = replace(elmo.bundle, model=copy.deepcopy(elmo.bundle.model).requires_grad_(True))
    embedder = elmore.Embedder(bundle, device="cpu", precision=precision)
    before = embedder.embed([["the", "bank"]])[0].vectors
    with torch.no_grad():
        for weight in bundle.model.parameters():
            weight.mul_(0.5)
    after = embedder.embed([["the", "bank"]])[0].vectors
    assert np.abs(after - before).max() > 0.01
    expected = elmore.Embedder(bundle, device="cpu", precision=precision)
    np.testing.assert_array_equal(expected.embed([["the", "bank"]])[0].vectors, after)


def test_an_embedder_uses_the_weights_of_a_fused_optimizer_once_it_is_moved(elmo):
    bundle = replace(elmo.bundle, model=copy.deepcopy(elmo.bundle.model).requires_grad_(True))
    embedder = elmore.Embedder(bundle, device="cpu")
    before = embedder.embed([["the", "bank"]])[0].vectors
    optimizer = torch.optim.AdamW(bundle.model.parameters(), lr=0.1, fused=True)
    stack, _ = bundle.run([["the", "bank"]])
    stack.states.sum().backward()
    optimizer.step()
    after = embedder.to(embedder.device).embed([["the", "bank"]])[0].vectors
    assert np.abs(after - before).max() > 0.01
    expected = elmore.Embedder(bundle, device="cpu").embed([["the", "bank"]])[0].vectors
    np.testing.assert_array_equal(after, expected)


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_a_backend_may_be_chosen_after_the_first_call(elmo, precision, monkeypatch):
    embedder = elmore.Embedder(elmo.bundle, device="cpu", precision=precision)
    before = embedder.embed([["the", "bank"]])[0].vectors
    reference, calls = backends.BACKENDS["reference"], []

    def run(call):
        calls.append(call)
        return reference.run(call)

    monkeypatch.setitem(backends.BACKENDS, "reference", replace(reference, run=run))
    embedder.bundle.model.use_backend("reference")
    np.testing.assert_allclose(embedder.embed([["the", "bank"]])[0].vectors, before, atol=0.02)
    assert calls
    calls.clear()
    embedder.bundle.model.use_backend("auto")
    np.testing.assert_array_equal(embedder.embed([["the", "bank"]])[0].vectors, before)
    assert not calls


@pytest.mark.parametrize("backend", ["eager", "reference"])
def test_a_sentence_has_the_same_bits_in_any_batch_with_any_backend(elmo, backend):
    embedder = elmore.Embedder(elmo.bundle, device="cpu")
    embedder.bundle.model.use_backend(backend)
    texts = [["the", "bank"] * length for length in range(1, 40)]
    together = embedder.embed(texts)
    for number in range(0, len(texts), pick(6, 1)):
        (alone,) = embedder.embed([texts[number]])
        np.testing.assert_array_equal(alone.vectors, together[number].vectors)


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("kwargs", [{}, {"precision": "fast"}, {"stateful": True}])
def test_autocast_changes_no_bit(elmo, backend, kwargs):
    texts = [["the", "bank"], ["a", "bank", "of", "sand"]]
    mix = SavedMix((0.0, 1.0, 2.0, 0.5), gamma=1.5)

    def embed():
        embedder = elmore.Embedder(elmo.bundle, device="cpu", initial_state="warm", **kwargs)
        embedder.bundle.model.use_backend(backend)
        return [
            text.vectors for layers in ("all", mix) for text in embedder.embed(texts, layers=layers)
        ]

    expected = embed()
    with torch.autocast("cpu", torch.bfloat16):
        found = embed()
        assert torch.is_autocast_enabled("cpu")
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
