import copy
import dataclasses

import pytest
import torch
from torch.testing import assert_close

from elmore.errors import ConfigError, DataError
from elmore.model.bilm import BiLM, BiLMState
from elmore.model.config import BiLMConfig, CharCNNConfig, LSTMConfig, WordsConfig
from elmore.model.lstm.layer import LSTMState, ProjectedLSTM
from elmore.model.precision import with_precision

SMALL = LSTMConfig(cell_dim=7, output_dim=4, cell_clip=0.4, output_clip=0.3)


def words(lstm: LSTMConfig = SMALL, **changes) -> BiLM:
    table = WordsConfig(num_words=9, dim=lstm.output_dim)
    config = BiLMConfig(characters=None, words=table, projection=False, lstm=lstm)
    return BiLM(dataclasses.replace(config, **changes)).eval()


def run(model: BiLM, sentence: list[int], state: BiLMState | None = None):
    index = torch.tensor([sentence])
    return model(index, None, torch.arange(9), state)


def test_layers_have_both_directions_and_the_token_layer_twice():
    model = words()
    stack, state = run(model, [1, 2, 3])
    assert stack.states.shape == (3, 1, 3, 8)
    token = model.tokens.words(torch.tensor([1, 2, 3]))
    assert_close(stack.states[0, 0], torch.cat([token, token], dim=1))
    assert state.output.shape == (2, 2, 1, 4)
    assert state.cell.shape == (2, 2, 1, 7)


def test_forward_never_sees_the_future_nor_backward_the_past():
    model = words()
    (one, _), (other, _) = run(model, [1, 2, 3, 4]), run(model, [1, 2, 8, 4])
    assert_close(one.states[1:, 0, :2, :4], other.states[1:, 0, :2, :4], rtol=0, atol=0)
    assert_close(one.states[1:, 0, 3:, 4:], other.states[1:, 0, 3:, 4:], rtol=0, atol=0)
    assert (one.states[1:, 0, 3:, :4] != other.states[1:, 0, 3:, :4]).any()
    assert (one.states[1:, 0, :2, 4:] != other.states[1:, 0, :2, 4:]).any()


def test_state_in_and_state_out_continue_a_sentence():
    model = words()
    whole, after_whole = run(model, [1, 2, 3, 4])
    _, after_start = run(model, [1, 2])
    rest, after_rest = run(model, [3, 4], after_start)
    assert_close(rest.states[:, :, :, :4], whole.states[:, :, 2:, :4])
    assert_close(after_rest.output[0], after_whole.output[0])
    assert_close(after_rest.cell[0], after_whole.cell[0])


def test_padding_is_zero_and_leaves_the_state_alone():
    model = words()
    index = torch.tensor([[1, 2, 3, 4], [5, 6, -1, -1]])
    stack, state = model(index, None, torch.arange(9))
    alone, alone_state = run(model, [5, 6])
    assert (stack.states[:, 1, 2:] == 0).all()
    assert_close(stack.states[:, 1, :2], alone.states[:, 0])
    assert_close(state.output[:, :, 1:], alone_state.output)
    assert_close(state.cell[:, :, 1:], alone_state.cell)


def test_the_skip_adds_the_input_from_the_second_layer_on():
    plain = words(dataclasses.replace(SMALL, skip_connections=False))
    skipping = words()
    skipping.load_state_dict(plain.state_dict())
    one, other = run(plain, [1, 2, 3])[0].states, run(skipping, [1, 2, 3])[0].states
    assert_close(other[1], one[1])
    assert_close(other[2], one[2] + one[1])


def test_boundaries_are_dropped_within_each_length():
    model = words()
    stack, _ = model(torch.tensor([[1, 2, 3, 4], [5, 6, -1, -1]]), None, torch.arange(9))
    inner = stack.without_boundaries()
    assert inner.mask.tolist() == [[True, True], [False, False]]
    assert_close(inner.states[:, 0], stack.states[:, 0, 1:3])
    assert (inner.states[:, 1] == 0).all()


def test_dropout_acts_in_training_alone():
    model = words(dropout=0.5)
    assert_close(run(model, [1, 2, 3])[0].states, run(model, [1, 2, 3])[0].states)
    model.train()
    assert (run(model, [1, 2, 3])[0].states != run(model, [1, 2, 3])[0].states).any()


@pytest.mark.parametrize("clip", [None, 0.2])
def test_gradients_of_the_lstm_are_those_of_finite_differences(clip):
    config = dataclasses.replace(SMALL, cell_clip=clip, output_clip=clip)
    layer = ProjectedLSTM(config).double()
    inputs = torch.randn(2, 3, 4, dtype=torch.double, requires_grad=True)
    mask = torch.tensor([[True, True, True], [True, True, False]])
    start = LSTMState(torch.zeros(2, 4).double(), torch.zeros(2, 7).double())
    assert torch.autograd.gradcheck(lambda x: layer(x, mask, start)[0], inputs)


def test_forget_bias_is_a_value_of_the_configuration_not_of_the_weights():
    added = words()
    stored = words(dataclasses.replace(SMALL, forget_bias=0.0))
    stored.load_state_dict(added.state_dict())
    assert (run(added, [1, 2])[0].states != run(stored, [1, 2])[0].states).any()
    with torch.no_grad():
        for layer in (*stored.forward_layers, *stored.backward_layers):
            layer.bias[7:14] += 1.0  # gates: input, forget, candidate, output
    assert_close(run(added, [1, 2])[0].states, run(stored, [1, 2])[0].states)


def test_blocks_of_words_give_what_one_block_gives(monkeypatch):
    from elmore.model import char_cnn

    cnn = char_cnn.CharCNN(CharCNNConfig(embedding_dim=3, filters=((1, 2), (3, 4))))
    characters = torch.randint(0, 261, (10, 9))
    whole = cnn(characters)
    monkeypatch.setitem(char_cnn._BLOCK, "cpu", 3)
    assert_close(cnn(characters), whole)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LSTMConfig(cell_dim=4, output_dim=8), r"output_dim \(8\) must not exceed"),
        (lambda: LSTMConfig(projection=False), "must equal lstm.cell_dim"),
        (lambda: LSTMConfig(num_layers=0), "lstm.num_layers must be between 1 and"),
        (lambda: LSTMConfig(cell_clip=-1.0), "lstm.cell_clip must be above 0"),
        (lambda: LSTMConfig(forget_bias=float("nan")), "forget_bias must be finite"),
        (lambda: LSTMConfig(forget_bias=1e308), "forget_bias must be finite"),
        (lambda: LSTMConfig(output_clip=float("inf")), "output_clip must be above 0"),
        (lambda: LSTMConfig(cell_clip=1e308), "cell_clip must be above 0 and at most 3.403e"),
        (lambda: LSTMConfig(cell_dim=10**30), "lstm.cell_dim must be between 1 and"),
        (lambda: CharCNNConfig(filters=()), "filters must be"),
        (lambda: CharCNNConfig(max_characters=6), "the widest filter"),
        (lambda: CharCNNConfig(padding_id=261), "must be below characters.num_ids"),
        (lambda: CharCNNConfig(num_highways=-1), "must be between 0 and 100, found -1"),
        (lambda: BiLMConfig(characters=None), "needs characters, words, or both"),
        (lambda: BiLMConfig(projection=False), "without projection they must be equal"),
        (lambda: BiLMConfig(dropout=1.0), "dropout must be"),
        (lambda: WordsConfig(num_words=0, dim=3), "words.num_words must be between 1 and"),
    ],
)
def test_an_impossible_shape_is_refused_with_the_reason(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_inference_after_an_update_by_a_fused_optimizer_uses_the_new_weights(precision):
    """Torch does not count such writes, so a cache of packed weights could outlive them."""
    characters = CharCNNConfig(embedding_dim=3, filters=((1, 4), (2, 5)), num_highways=1)
    lstm = dataclasses.replace(SMALL, output_dim=32, cell_dim=64)
    model = BiLM(BiLMConfig(characters=characters, lstm=lstm)).eval()
    network = with_precision(model, precision)
    ids, index = torch.randint(0, 200, (6, 7)), torch.tensor([[0, 3, 2, 5]])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)

    def infer(model: BiLM) -> torch.Tensor:
        with torch.no_grad():
            return model(index, ids, None)[0].states

    before = infer(network)
    model(index, ids, None)[0].states.square().sum().backward()
    optimizer.step()
    after = infer(network)
    assert not torch.equal(after, before)
    assert torch.equal(after, infer(with_precision(copy.deepcopy(model), precision)))


@pytest.mark.parametrize("learns", [True, False])
def test_words_longer_than_the_model_reads_are_refused_in_training_as_in_inference(learns):
    """Training cut them off and inference read them to their end: two vectors for one word."""
    characters = CharCNNConfig(embedding_dim=3, filters=((1, 4), (2, 5)), max_characters=6)
    model = BiLM(BiLMConfig(characters=characters, lstm=SMALL)).eval()
    ids, index = torch.randint(0, 200, (4, 7)), torch.tensor([[0, 3, 2]])
    with torch.set_grad_enabled(learns):
        assert model(index, ids[:, :6], None)[0].states.isfinite().all()
        with pytest.raises(DataError, match="ids have 7 columns, the model reads at most 6"):
            model(index, ids, None)
