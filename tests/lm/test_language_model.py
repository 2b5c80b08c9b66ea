"""The language model by its definition: from characters to the loss, and back to every weight."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from elmore.corpus.stream import Direction, StreamConfig, TBPTTBatch, TBPTTDataset
from elmore.errors import DataError
from elmore.lm.batches import BatchEncoder
from elmore.lm.language_model import LanguageModel
from elmore.model.bilm import BACKWARD, FORWARD
from elmore.text.characters import ByteAlphabet
from tests.support import toy_corpus


def small(corpus, *overrides: str):
    """A model and two batches in float64, the weights large enough for every part to matter."""
    settings = toy_corpus.recipe("model.dropout=0", "model.lstm.output_dim=5", *overrides)
    training = toy_corpus.training(corpus, settings)
    module = training.module.double()
    rng = np.random.RandomState(0)
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(torch.from_numpy(0.4 * rng.standard_normal(tuple(weight.shape))))
    return module, [training.make_batch(number) for number in (0, 1)]


def loss_of(module: LanguageModel, batches) -> torch.Tensor:
    """The loss over two batches, with the gradient flowing through what is carried too."""
    first = module(batches[0], None)
    return first.loss + module(batches[1], first.state).loss


@pytest.mark.parametrize(
    "softmax",
    [
        ("softmax.kind=full",),
        ("softmax.kind=sampled", "softmax.num_samples=30"),
        ("softmax.kind=sampled", "softmax.num_samples=20", "softmax.unique=true"),
        ("softmax.kind=adaptive",),
    ],
    ids=lambda values: " ".join(value.split("=")[1] for value in values),
)
def test_the_gradient_of_every_weight_is_that_of_finite_differences(corpus, softmax):
    module, batches = small(
        corpus,
        "stream.batch_size=3",
        "stream.unroll_steps=4",
        "stream.reset_probability=0.7",
        *softmax,
    )
    assert batches[1].resets.any()
    loss_of(module, batches).backward()
    rng = np.random.RandomState(1)
    for name, weight in module.named_parameters():
        direction = torch.from_numpy(rng.standard_normal(tuple(weight.shape)))
        ways = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                weight += step * direction
                ways.append(loss_of(module, batches).item())
                weight -= step * direction
        expected = (ways[0] - ways[1]) / 2e-6
        assert weight.grad is not None, name
        result = (weight.grad * direction).sum().item()
        assert result == pytest.approx(expected, rel=2e-6, abs=2e-7), name


def test_both_directions_share_all_but_their_lstms(corpus):
    module, (batch, _) = small(corpus)
    for direction, other in ((FORWARD, "backward_layers"), (BACKWARD, "forward_layers")):
        module.zero_grad()
        tops, _ = module.run_directions(batch, None)
        tops[direction].sum().backward()
        touched = {name for name, weight in module.named_parameters() if weight.grad is not None}
        assert not any(other in name for name in touched)
        assert any("tokens" in name for name in touched)


def test_the_loss_is_half_the_sum_of_both_directions_at_every_position(corpus):
    module, (batch, _) = small(corpus, "softmax.kind=full")
    result = module(batch, None)
    tops, _ = module.run_directions(batch, None)
    expected = 0.0
    for direction in (FORWARD, BACKWARD):
        logits = tops[direction] @ module.softmax.weight.T + module.softmax.bias
        chances = logits.log_softmax(dim=2)
        for row in range(4):
            for step in range(5):
                expected -= chances[row, step, batch.targets[direction, row, step]] / 2
    assert_close(result.loss, torch.as_tensor(expected))
    assert result.count.item() == 4 * 5


def spelling(batch) -> list[tuple[int, ...]]:
    """The letters of the distinct words, in the order of their numbers."""
    rows = [row for some in batch.words for row in some.characters.tolist()]
    return [tuple(letter for letter in row if letter != 260) for row in rows]


def test_each_distinct_word_is_spelled_once_for_both_directions(corpus):
    _, (batch, _) = small(corpus)
    words = spelling(batch)
    assert len(set(words)) == len(words)
    assert set(batch.index.flatten().tolist()) == set(range(len(words)))


def test_words_of_all_lengths_are_encoded_as_they_are_alone(corpus):
    """However they are put together, and up to the width of the model and beyond."""
    module, _ = small(corpus)
    types = ["<S>", "</S>", *("x" * length for length in (1, 49, 7, 8, 12, 30, 18, 48, 60, 11))]
    batches = BatchEncoder(types, ByteAlphabet(), np.zeros(len(types), np.int64), padding_id=260)
    rng = np.random.RandomState(0)
    index = rng.permutation(len(types)).reshape(3, 4)
    way = Direction(index, np.zeros_like(index), np.zeros(index.shape, bool))
    batch = batches.encode(TBPTTBatch(np.arange(len(types)), way, way))
    with torch.no_grad():
        result = module.encode_words(batch)[batch.index]
        for row, column in np.ndindex(3, 4):
            ids, _ = ByteAlphabet().encode([types[index[row, column]]])
            alone = module.bilm.tokens(torch.from_numpy(ids), None)[0]
            assert_close(result[0, row, column], alone)
            assert_close(result[1, row, column], alone)


def test_batches_of_one_shape_say_what_those_of_their_own_shape_say(corpus):
    training = toy_corpus.training(corpus, toy_corpus.recipe("model.dropout=0"))
    module = training.module.double()
    windows = [training._dataset.batch(number) for number in range(8)]
    sizes = training._encoder.padding_sizes(windows)
    shapes = set()
    for window in windows:
        plain, padded = (training._encoder.encode(window, (1, 2), some) for some in (None, sizes))
        shapes.add(tuple(words.characters.shape for words in padded.words))
        assert sum(len(words.characters) for words in padded.words) == sum(sizes)
        assert_close(module(padded, None).loss, module(plain, None).loss)
    assert len(shapes) == 1


def test_a_batch_that_does_not_fit_keeps_its_own_shape(corpus):
    training = toy_corpus.training(corpus, toy_corpus.recipe())
    window = training._dataset.batch(0)
    plain, tight = (training._encoder.encode(window, (0, 0), some) for some in (None, (1, 1, 1, 1)))
    for one, other in zip(plain.words, tight.words, strict=True):
        assert_close(one.characters, other.characters)
    assert_close(plain.index, tight.index)


def test_a_carried_state_is_what_one_long_batch_would_have(corpus):
    """Where nothing is set anew, two batches of 5 are one of 10: the values, not the gradient."""
    module, short = small(corpus, "stream.reset_probability=0", "softmax.kind=full")
    _, (long, _) = small(
        corpus, "stream.reset_probability=0", "stream.unroll_steps=10", "softmax.kind=full"
    )
    first = module(short[0], None)
    second = module(short[1], first.state)
    whole = module(long, None)
    assert_close(first.loss + second.loss, whole.loss)
    assert_close(second.state, whole.state)


def test_with_a_reset_at_each_sentence_no_state_is_carried(corpus):
    """The first token of a sentence is read the same whatever was carried there."""
    module, (batch, _) = small(corpus, "stream.reset_probability=1")
    _, carried = module.run_directions(batch, None)
    noise = {name: tensor + 1 for name, tensor in carried.items()}
    calm, _ = module.run_directions(batch, None)
    loud, _ = module.run_directions(batch, noise)
    for direction in (FORWARD, BACKWARD):
        since = batch.resets[direction].long().cumsum(dim=1) > 0
        assert since.any()
        assert_close(calm[direction][since], loud[direction][since], rtol=0, atol=0)


def test_dropout_acts_on_the_input_of_each_layer_and_on_what_the_softmax_sees(corpus, monkeypatch):
    module, (batch, _) = small(corpus, "softmax.kind=full")
    module.train()
    quiet = module(batch, None).loss.item()
    seen, dropout = [], torch.nn.functional.dropout

    def watched(inputs, p, training, *more):
        seen.append((p, training))
        return dropout(inputs, p, training, *more)

    monkeypatch.setattr(torch.nn.functional, "dropout", watched)
    module.bilm.dropout.p = 0.5
    assert module(batch, None).loss.item() != pytest.approx(quiet)
    # each direction: the input of both layers, and the top
    assert seen == [(0.5, True)] * 2 * (2 + 1)


def test_an_unknown_word_keeps_its_letters_and_is_the_unknown_target(corpus):
    assert "日本" not in corpus.vocabulary
    number = list(corpus.types).index("日本")
    window = TBPTTDataset(
        corpus.split("train"),
        StreamConfig(batch_size=1, unroll_steps=3000, shuffle_block=0),
        seed=0,
    ).batch(0)
    batch = BatchEncoder(corpus.types, ByteAlphabet(), corpus.word_ids(), padding_id=260).encode(
        window
    )
    (unknown,) = corpus.vocabulary.ids(["<UNK>"])
    spelled, words = (258, *"日本".encode(), 259), spelling(batch)
    for direction in (0, 1):
        read = window.types[window[1 + direction].index] == number
        (word,) = {int(index) for index in batch.index[direction][torch.from_numpy(read)]}
        assert words[word] == spelled
        targets = torch.from_numpy(window[1 + direction].targets == number)
        assert targets.any()
        assert (batch.targets[direction][targets] == unknown).all()


def test_a_bf16_state_from_a_gpu_continues_in_float32(corpus):
    module, (first, second) = small(corpus, "softmax.kind=full", "stream.reset_probability=0")
    module.float()
    carried = {name: tensor.detach() for name, tensor in module(first, None).state.items()}
    rounded = {"output": carried["output"].bfloat16(), "cell": carried["cell"]}
    result = module(second, rounded)
    again = module(second, {name: tensor.float() for name, tensor in rounded.items()})
    assert_close(result.loss, again.loss, rtol=0, atol=0)
    assert {tensor.dtype for tensor in result.state.values()} == {torch.float32}
    assert_close(result.loss, module(second, carried).loss, rtol=1e-2, atol=0)
    assert result.loss != module(second, carried).loss  # it was rounded, and it was read


@pytest.mark.parametrize("damage", ["fewer rows", "one part", "another name", "other axes"])
def test_a_carried_state_of_another_model_is_refused(corpus, damage):
    module, (first, second) = small(corpus)
    carried = module(first, None).state
    carried = {
        "fewer rows": {name: tensor[1:] for name, tensor in carried.items()},
        "one part": {"cell": carried["cell"]},
        "another name": {**carried, "more": carried["cell"]},
        "other axes": {name: tensor.flatten(1) for name, tensor in carried.items()},
    }[damage]
    with pytest.raises(DataError, match="the recurrent state in the checkpoint does not fit this"):
        module(second, carried)
