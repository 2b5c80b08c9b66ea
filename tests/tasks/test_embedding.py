import pytest
import torch
from torch.testing import assert_close

from elmore.embed.embedder import load
from elmore.tasks.embedding import ElmoConfig, ElmoMix, Embedding, WordTable
from elmore.tasks.layers.encoders import CharEncoder
from elmore.tasks.reading import Reader, known_words
from elmore.text.characters import ByteAlphabet

SENTENCES = [["the", "cat"], ["a", "much", "longer", "one", "."]]


@pytest.fixture
def elmo(bilm):
    return load(bilm, device="cpu")


def read(reader: Reader, sentences=SENTENCES):
    return reader.read(sentences, reader.computed(sentences))


def test_unknown_words_share_one_learned_vector_and_the_table_is_no_state():
    vectors = torch.randn(4, 3)
    table = WordTable(vectors, freeze=True, dropout=0.0)
    assert set(table.state_dict()) == {"unknown"}
    torch.nn.init.ones_(table.unknown)
    found = table(torch.tensor([[2, -1], [0, -1]]))
    assert_close(found, torch.stack([vectors[[2, 0]], torch.ones(2, 3)], dim=1))
    found.sum().backward()
    assert_close(table.unknown.grad, torch.full((3,), 2.0))
    assert not table.vectors.requires_grad


def test_in_training_some_words_are_taken_for_unknown():
    table = WordTable(torch.ones(1, 1), freeze=False, dropout=0.25)
    ids = torch.zeros(100, 100, dtype=torch.long)
    assert table(ids).mean().item() == pytest.approx(0.75, abs=0.02)
    assert table.eval()(ids).mean().item() == 1.0


def test_words_are_known_from_their_second_time_on():
    assert known_words([["b", "a", "b"], ["b", "a", "c"]], min_count=2) == ["b", "a"]


def test_an_untrained_mix_is_the_average_of_the_layers(elmo):
    reader = Reader(elmo=elmo)
    vectors, mask = Embedding(None, None, ElmoMix(ElmoConfig(dropout=0.0), elmo))(read(reader))
    for row, sentence in enumerate(elmo.embed(SENTENCES)):
        length = len(sentence.tokens)
        expected = torch.from_numpy(sentence.vectors)
        assert_close(vectors[row, :length], expected, rtol=1e-3, atol=1e-3)
        assert mask[row].tolist() == [i < length for i in range(5)]
        assert not vectors[row, length:].any()


def test_a_frozen_bilm_is_no_state_and_its_mix_is_learned(elmo):
    mix = ElmoMix(ElmoConfig(), elmo)
    assert set(mix.state_dict()) == {"mix.weights", "mix.gamma"}
    mix(read(Reader(elmo=elmo))).sum().backward()
    assert mix.mix.weights.grad is not None
    assert all(weight.grad is None for weight in elmo.bundle.model.parameters())


def test_a_bilm_that_is_trained_along_is_a_copy_and_part_of_the_state(elmo):
    mix = ElmoMix(ElmoConfig(freeze=False, dropout=0.0), elmo).eval()
    assert any(name.startswith("bilm.") for name in mix.state_dict())
    before = ElmoMix(ElmoConfig(dropout=0.0), elmo)(read(Reader(elmo=elmo)))
    batch = Reader().read(SENTENCES, None)
    assert batch.layers is None
    found = mix(batch)
    assert_close(found * batch.mask[:, :, None], before, rtol=1e-3, atol=1e-3)
    found.sum().backward()
    assert all(weight.grad is not None for weight in mix.bilm.parameters())
    assert all(weight.grad is None for weight in elmo.bundle.model.parameters())


def test_the_penalty_is_lambda_times_the_squares(elmo):
    mix = ElmoMix(ElmoConfig(penalty=0.1), elmo)
    with torch.no_grad():
        mix.mix.weights.copy_(torch.tensor([1.0, 2.0, -1.0]))
    assert Embedding(None, None, mix).penalty().item() == pytest.approx(0.1 * 6)
    assert (
        Embedding(WordTable(torch.ones(1, 1), freeze=True, dropout=0.0), None, None).penalty() == 0
    )


def test_a_word_has_the_same_characters_vector_wherever_it_stands():
    embedding = Embedding(None, CharEncoder(4, 6), None)
    vectors, _ = embedding(read(Reader(alphabet=ByteAlphabet()), [["cat", "a"], ["the", "cat"]]))
    assert vectors.shape == (2, 2, 6)
    assert_close(vectors[0, 0], vectors[1, 1])
    assert not torch.equal(vectors[0, 0], vectors[0, 1])
