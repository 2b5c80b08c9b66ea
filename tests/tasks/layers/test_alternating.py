import pytest
import torch
from torch.testing import assert_close

from elmore.tasks.layers.alternating import AlternatingHighwayLSTM, AlternatingLSTM

LENGTHS = [5, 3, 0, 1]
KINDS = [AlternatingLSTM, AlternatingHighwayLSTM]


def mask_of(lengths=LENGTHS, num_tokens=5):
    return torch.arange(num_tokens) < torch.tensor(lengths)[:, None]


def changed(kind, num_layers: int, token: int) -> list[int]:
    """Which of five outputs change when one token does."""
    encoder = kind(4, 6, num_layers).eval()
    x = torch.randn(1, 5, 4)
    other = x.clone()
    other[0, token] += 1.0
    mask = mask_of([5])
    moved = (encoder(x, mask) - encoder(other, mask)).abs().sum(dim=-1)[0]
    return (moved > 1e-6).nonzero().flatten().tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_one_layer_reads_forwards_and_a_second_makes_every_token_see_all(kind):
    assert changed(kind, 1, 2) == [2, 3, 4]
    assert changed(kind, 1, 0) == [0, 1, 2, 3, 4]
    assert changed(kind, 1, 4) == [4]
    assert changed(kind, 2, 4) == changed(kind, 2, 0) == changed(kind, 3, 2) == [0, 1, 2, 3, 4]


def test_the_second_layer_reads_backwards():
    encoder = AlternatingLSTM(4, 4, 2).eval()
    x, mask = torch.randn(1, 5, 4), mask_of([5])
    with torch.no_grad():  # a gate that is shut lets the first layer pass its input on
        first = encoder.highways[0]
        first.weight.zero_()
        first.weight[4:].copy_(torch.eye(4))
        first.bias.zero_()
        first.bias[:4] = -100.0
    other = x.clone()
    other[0, 2] += 1.0
    moved = (encoder(x, mask) - encoder(other, mask)).abs().sum(dim=-1)[0] > 1e-6
    assert moved.tolist() == [True, True, True, False, False]


def test_a_layer_is_its_definition():
    encoder = AlternatingLSTM(4, 3, 1).double()
    x = torch.randn(1, 5, 4).double()
    gate = torch.sigmoid(x @ encoder.highways[0].weight[:3].T + encoder.highways[0].bias[:3])
    carried = x @ encoder.highways[0].weight[3:].T + encoder.highways[0].bias[3:]
    expected = gate * encoder.layers[0](x)[0] + (1 - gate) * carried
    assert_close(encoder(x, mask_of([5])), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_padding_and_other_texts_change_nothing(kind, num_layers):
    encoder = kind(4, 6, num_layers, dropout=0.5).double().eval()
    x, mask = torch.randn(4, 5, 4).double(), mask_of()
    result = encoder(x, mask)
    assert not result[~mask].any()
    for row, length in enumerate(LENGTHS):
        alone = encoder(x[row : row + 1, :length], mask[row : row + 1, :length])
        assert_close(result[row : row + 1, :length], alone)
    garbage = x.masked_fill(~mask[:, :, None], 1e3)
    assert_close(encoder(garbage, mask), result)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_stay_inside_the_sentences(kind):
    encoder = kind(4, 6, 2)
    x = torch.randn(4, 5, 4, requires_grad=True)
    encoder(x, mask_of()).square().sum().backward()
    assert x.grad[mask_of()].abs().min() > 0
    assert not x.grad[~mask_of()].any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(0, 5), (2, 0)])
def test_an_empty_batch_is_supported(kind, shape):
    encoder = kind(4, 6, 2)
    result = encoder(torch.zeros(*shape, 4), torch.zeros(shape, dtype=torch.bool))
    assert result.shape == (*shape, 6)


def test_layers_start_orthogonal_and_remembering():
    encoder = AlternatingLSTM(6, 6, 1)
    (layer,) = encoder.layers
    for gate in layer.weight_hh_l0.chunk(4):
        assert_close(gate @ gate.T, torch.eye(6), atol=1e-5, rtol=0)
    assert_close(layer.bias_ih_l0 + layer.bias_hh_l0, torch.eye(4)[1].repeat_interleave(6))


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_is_supported(kind):
    encoder = kind(4, 6, 2).bfloat16()
    assert encoder(torch.randn(4, 5, 4).bfloat16(), mask_of()).dtype == torch.bfloat16
