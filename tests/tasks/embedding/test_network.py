import numpy as np
import pytest
import torch
from torch.testing import assert_close

from elmore.embed.jobs import layer_cache
from elmore.embed.jobs.layer_cache import CachedLayers
from elmore.embed.loading import load
from elmore.errors import ConfigError
from elmore.tasks.data.encode import BatchEncoder, build_vocabulary
from elmore.tasks.embedding.network import (
    BiLMLayers,
    CharactersConfig,
    ElmoConfig,
    Embedding,
    LayerMix,
    Widths,
    WordsConfig,
    WordTable,
)
from elmore.tasks.layers.crf import CRF
from elmore.tasks.layers.encoders import CharEncoder
from elmore.text.characters import ByteAlphabet
from elmore.train import muon
from tests.support.largest_tensor import Largest

SENTENCES = [["the", "cat"], ["a", "much", "longer", "one", "."]]


@pytest.fixture
def elmo(bilm):
    return load(bilm, device="cpu")


def encode(encoder: BatchEncoder, sentences=SENTENCES):
    elmo = encoder.frozen_elmo
    return encoder.encode(sentences, layer_cache.compute(elmo, sentences) if elmo else None)


def test_unknown_words_share_one_learned_vector_and_the_table_is_no_state():
    vectors = torch.randn(4, 3)
    table = WordTable(vectors, freeze=True, dropout=0.0)
    assert set(table.state_dict()) == {"unknown"}
    torch.nn.init.ones_(table.unknown)
    result = table(torch.tensor([2, -1, 0, -1]))
    assert_close(result, torch.stack([vectors[2], torch.ones(3), vectors[0], torch.ones(3)]))
    result.sum().backward()
    assert_close(table.unknown.grad, torch.full((3,), 2.0))
    assert not table.vectors.requires_grad


def test_in_training_some_words_are_taken_for_unknown():
    table = WordTable(torch.ones(1, 1), freeze=False, dropout=0.25)
    ids = torch.zeros(10_000, dtype=torch.long)
    assert table(ids).mean().item() == pytest.approx(0.75, abs=0.02)
    assert table.eval()(ids).mean().item() == 1.0


def test_words_are_known_from_their_second_time_on():
    assert build_vocabulary([["b", "a", "b"], ["b", "a", "c"]], min_count=2) == ["b", "a"]


def test_an_untrained_mix_is_the_average_of_the_layers(elmo):
    reader = BatchEncoder(frozen_elmo=elmo)
    tokens = Embedding(None, None, elmo, ElmoConfig(dropout=0.0))(encode(reader))
    vectors, mask, output_elmo = tokens.to_padded()
    assert output_elmo.shape == (2, 5, 0)
    for row, sentence in enumerate(elmo.embed(SENTENCES)):
        length = len(sentence.tokens)
        expected = torch.from_numpy(sentence.vectors)
        assert_close(vectors[row, :length], expected, rtol=1e-3, atol=1e-3)
        assert mask[row].tolist() == [i < length for i in range(5)]
        assert not vectors[row, length:].any()


def test_a_batch_is_stored_without_padding(elmo):
    """A thousand short sentences and one of 2,000 tokens: side by side they were two million."""
    sentences = [["a", "b"]] * 1000 + [["c"] * 2000]
    reader = BatchEncoder(
        lambda tokens: np.zeros(len(tokens), dtype=np.int64), ByteAlphabet(), elmo
    )
    layers = CachedLayers([("a", "b"), ("c",) * 2000], np.zeros((2002, 3, elmo.width), np.float16))
    batch = reader.encode(sentences, layers)
    words = WordTable(torch.ones(1, 4), freeze=True, dropout=0.0)
    embedding = Embedding(words, CharEncoder(4, 6), elmo, ElmoConfig(insert_at="both"))
    with Largest() as largest:
        result = embedding(batch)
    assert len(result.vectors) == 4000
    assert largest.numel <= 4000 * 3 * elmo.width  # the layers


def test_a_frozen_bilm_is_not_in_the_state_dict_and_its_mix_is_trained(elmo):
    embedding = Embedding(None, None, elmo, ElmoConfig())
    weights, gamma = "mixes.input.mix.weights", "mixes.input.mix.gamma"
    assert set(embedding.state_dict()) == {weights, gamma}
    embedding(encode(BatchEncoder(frozen_elmo=elmo))).vectors.sum().backward()
    assert embedding.get_parameter(weights).grad is not None
    assert all(weight.grad is None for weight in elmo.bundle.model.parameters())


def test_a_fine_tuned_bilm_is_a_copy_and_part_of_the_state_dict(elmo):
    layers = BiLMLayers(elmo, freeze=False).eval()
    assert any(name.startswith("bilm.") for name in layers.state_dict())
    before = BiLMLayers(elmo, freeze=True)(encode(BatchEncoder(frozen_elmo=elmo))).float()
    batch = BatchEncoder().encode(SENTENCES, None)
    assert batch.layers is None
    result = layers(batch)
    assert_close(result, before, rtol=1e-3, atol=1e-3)
    result.sum().backward()
    assert all(weight.grad is not None for weight in layers.bilm.parameters())
    assert all(weight.grad is None for weight in elmo.bundle.model.parameters())


def test_the_penalty_is_lambda_times_the_squares(elmo):
    embedding = Embedding(None, None, elmo, ElmoConfig(penalty=0.1, insert_at="both"))
    with torch.no_grad():
        embedding.get_parameter("mixes.input.mix.weights")[:] = torch.tensor([1.0, 2.0, -1.0])
        embedding.get_parameter("mixes.output.mix.weights")[:] = torch.tensor([0.0, 1.0, 0.0])
    assert embedding.penalty().item() == pytest.approx(0.1 * (6 + 1))
    words = WordTable(torch.ones(1, 1), freeze=True, dropout=0.0)
    assert Embedding(words, None, None, ElmoConfig()).penalty() == 0


@pytest.mark.parametrize("where", ["input", "output", "both"])
def test_each_insertion_point_has_its_own_mix(elmo, where):
    words = WordTable(torch.ones(1, 4), freeze=True, dropout=0.0)
    embedding = Embedding(words, None, elmo, ElmoConfig(insert_at=where, dropout=0.0))
    places = ["input", "output"] if where == "both" else [where]
    assert list(embedding.layer_weights()) == places
    width = {index: elmo.width * (index in places) for index in ("input", "output")}
    assert embedding.widths == Widths(4 + width["input"], width["output"])
    reader = BatchEncoder(lambda tokens: np.zeros(len(tokens), dtype=np.int64), frozen_elmo=elmo)
    with torch.no_grad():
        for index, gamma in zip(places, (2.0, 3.0), strict=False):
            embedding.get_parameter(f"mixes.{index}.mix.gamma").fill_(gamma)
    result = embedding(encode(reader))
    assert (result.vectors.shape[1], result.output_elmo.shape[1]) == embedding.widths
    plain = LayerMix(ElmoConfig(dropout=0.0), elmo.num_layers)(encode(reader).layers)
    parts = {"input": result.vectors[:, 4:], "output": result.output_elmo}
    for index, gamma in zip(places, (2.0, 3.0), strict=False):
        assert_close(parts[index], gamma * plain)


def test_a_bilm_at_the_output_alone_is_refused_without_other_inputs(elmo):
    with pytest.raises(ConfigError, match="the network has no input"):
        Embedding(None, None, elmo, ElmoConfig(insert_at="output"))


def test_a_word_has_the_same_characters_vector_wherever_it_stands():
    embedding = Embedding(None, CharEncoder(4, 6), None, ElmoConfig())
    reader = BatchEncoder(alphabet=ByteAlphabet())
    vectors = embedding(encode(reader, [["cat", "a"], ["the", "cat"]])).vectors
    assert vectors.shape == (4, 6)
    assert_close(vectors[0], vectors[3])
    assert not torch.equal(vectors[0], vectors[1])


@pytest.mark.parametrize(
    ("cls", "settings", "found"),
    [
        (WordsConfig, {"dim": 0}, "found 0, 2 and 0.1"),
        (WordsConfig, {"min_count": 0}, "found 50, 0 and 0.1"),
        (WordsConfig, {"dropout": 1.0}, "found 50, 2 and 1.0"),
        (CharactersConfig, {"embedding_dim": 0}, r"found 0, 128 and \(3,\)"),
        (CharactersConfig, {"num_filters": 0}, r"found 16, 0 and \(3,\)"),
        (CharactersConfig, {"widths": (3, 51)}, r"found 16, 128 and \(3, 51\)"),
    ],
)
def test_invalid_sizes_are_refused(cls, settings, found):
    with pytest.raises(ConfigError, match=found):
        cls(**settings)


def test_muon_leaves_tables_of_words_and_labels_to_adamw():
    table = WordTable(torch.randn(9, 3), freeze=False, dropout=0.0)
    linear = torch.nn.Linear(3, 2)
    network = torch.nn.ModuleList([table, linear, CRF(2)])
    assert [id(weight) for weight in muon.hidden_matrices(network)] == [id(linear.weight)]


def test_a_gamma_that_is_not_learned_stays_one(elmo):
    mix = LayerMix(ElmoConfig(learn_gamma=False), elmo.num_layers).mix
    assert mix.gamma.item() == 1
    assert (mix.gamma.requires_grad, mix.weights.requires_grad) == (False, True)
    assert LayerMix(ElmoConfig(), elmo.num_layers).mix.gamma.requires_grad
