"""The same sentence gets the same bits: alone, in any batch, in a server, after anything."""

import numpy as np
import pytest
import torch

import elmore
from elmore.embed.continuous import ContinuousBatcher
from elmore.embed.embedder import Embedder
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm
from tests.support.sweeps import pick

WORDS = ["the", "bank", "of", "naïve", "x" * 60, "日本", "a", "b", "reconstruction", "river", "."]
WORDS += [f"word{number}" for number in range(40)]


def texts(count: int, longest: int = 40) -> list[list[str]]:
    rng = np.random.default_rng(count)
    return [list(rng.choice(WORDS, rng.integers(0, longest))) for _ in range(count)]


@pytest.fixture(scope="module")
def elmo(tmp_path_factory) -> Embedder:
    settings = bilm_options(dim=50, projection_dim=10, filters=[[1, 9], [3, 7], [7, 5]])
    weights = bilm_weights(settings, np.random.default_rng(0))
    return elmore.load(*write_bilm(tmp_path_factory.mktemp("model"), settings, weights))


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def bits(found) -> list[bytes]:
    return [text.vectors.tobytes() for text in found]


def alone(elmo: Embedder, each: list[list[str]], **choices) -> list[bytes]:
    return [bits(elmo.embed([text], **choices))[0] for text in each]


@pytest.mark.parametrize(
    "count", [*pick([1, 2, 9, 48, 97], [*range(1, 20), 48, 64, 65, 96, 97, 130]), 300]
)
def test_other_texts_in_the_batch_change_no_bit(elmo, count):
    each = texts(count, longest=12)
    other = Embedder(elmo.bundle, device="cpu")  # without a cache from other tests
    together = bits(other.embed(each, layers="all"))
    assert together[:100] == alone(elmo, each[:100], layers="all")
    assert bits(other.embed(each[::-1], layers="all"))[::-1] == together
    assert bits(other.stream(each, layers="all")) == together


@pytest.mark.parametrize("layers", ["average", "top", 0, 1, "cloze", [1, "cloze"]])
def test_the_choice_of_layers_changes_no_bit_of_that(elmo, layers):
    each = texts(60, longest=12)
    assert bits(elmo.embed(each, layers=layers)) == alone(elmo, each, layers=layers)


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_other_texts_and_threads_change_no_bit_of_the_bundled_model(threads, precision):
    elmo = elmore.load(device="cpu", precision=precision)
    each = texts(70, longest=12)
    together = bits(elmo.embed(each))
    other = Embedder(elmo.bundle, device="cpu", precision=precision, cache_megabytes=0)
    assert alone(other, each[:4]) == together[:4]
    torch.set_num_threads(1)
    assert alone(other, each[4:7]) == together[4:7]


def test_budget_and_cache_change_no_bit(elmo):
    each = texts(80, longest=20)
    expected = bits(elmo.embed(each))
    for budget, megabytes in ((30, 0), (200, 0.01), (1000, 0.1)):
        other = Embedder(elmo.bundle, device="cpu", token_budget=budget, cache_megabytes=megabytes)
        assert bits(other.embed(each)) == expected
        assert bits(other.embed(each)) == expected


def test_a_long_sentence_has_the_same_bits_alone(elmo):
    each = [["the", "bank"] * 700, *texts(40), ["a"] * 300]
    together = bits(elmo.embed(each))
    assert alone(elmo, [each[0], each[-1]]) == [together[0], together[-1]]


@pytest.mark.parametrize("count", [1, 7, 48, 60])
def test_a_continuous_batch_gives_the_bits_of_a_single_call(elmo, count):
    each = texts(count)
    batch, sequences = ContinuousBatcher(elmo.runtime), []
    for begin in range(0, count, 5):
        sequences += batch.add([each[begin : begin + 5]])[0]
        batch.step()
    while any(sequence.num_left for sequence in sequences):
        batch.step()
    expected = elmo.embed(each, layers="all")
    for sequence, text in zip(sequences, expected, strict=True):
        assert np.asarray(sequence.layers).tobytes() == text.vectors.tobytes()
