import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from elmore.tasks.layers.highway_lstm import HighwayLSTM, HighwayLSTMFunction


def plainly(layer: HighwayLSTM, x: Tensor, mask: Tensor) -> Tensor:
    """Run the definition step by step, each gate by itself."""
    size = layer.hidden_dim
    w, u = layer.input_weight.split(size), layer.recurrent_weight.split(size)
    b = layer.bias.split(size)
    hidden = cell = x.new_zeros(len(x), size)
    states = []
    for token in x.unbind(dim=1):
        sums = [token @ w[n].T + hidden @ u[n].T + b[n] for n in range(5)]
        output, highway, into, forget = (part.sigmoid() for part in sums[:4])
        cell = forget * cell + into * sums[4].tanh()
        hidden = mask * (highway * output * cell.tanh() + (1 - highway) * (token @ w[5].T))
        states.append(hidden)
    return torch.stack(states, dim=1)


def drawn(layer: HighwayLSTM) -> HighwayLSTM:
    with torch.no_grad():
        layer.bias.normal_()
    return layer


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_values_and_gradients_are_those_of_the_definition(rate):
    layer = drawn(HighwayLSTM(4, 6, rate).double())
    x = torch.randn(3, 5, 4, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(3)
    found = layer(x)
    torch.manual_seed(3)
    expected = plainly(layer, x, functional.dropout(torch.ones(3, 6).double(), rate))
    assert_close(found, expected)
    weighted = torch.randn_like(found)
    inputs = [x, *layer.parameters()]
    gradients = [torch.autograd.grad((y * weighted).sum(), inputs) for y in (found, expected)]
    for result, gradient in zip(*gradients, strict=True):
        assert_close(result, gradient)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_gives_the_values_and_gradients_of_a_cpu():
    layer, x = drawn(HighwayLSTM(30, 40)).double(), torch.randn(7, 9, 30).double()
    results = []
    for device in ("cpu", "cuda"):
        layer = layer.to(device)
        states = layer(x.to(device))
        gradients = torch.autograd.grad(states.square().sum(), list(layer.parameters()))
        results.append([states, *gradients])
    for here, there in zip(*results, strict=True):
        assert_close(there.cpu(), here)


def test_gradients_are_those_of_small_differences():
    projected = torch.randn(4, 2, 18, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(15, 3, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1.5, 0.0, 1.5], [1.5, 1.5, 1.5]], dtype=torch.float64)
    assert torch.autograd.gradcheck(HighwayLSTMFunction.apply, (projected, weight, mask))


def test_one_draw_of_dropout_holds_for_a_whole_sentence_in_training_alone():
    layer = HighwayLSTM(4, 40, 0.5)
    x = torch.randn(6, 5, 4)
    zero = layer(x) == 0
    assert 0.3 < zero.float().mean() < 0.7
    assert torch.equal(zero, zero[:, :1].expand_as(zero))
    assert len(zero[:, 0].unique(dim=0)) == 6
    assert not (layer.eval()(x) == 0).any()


def test_weights_start_orthogonal_and_the_forget_gate_open():
    layer = HighwayLSTM(6, 6)
    for block in (*layer.input_weight.split(6), *layer.recurrent_weight.split(6)):
        assert_close(block @ block.T, torch.eye(6), atol=1e-5, rtol=0)
    assert_close(layer.bias, torch.eye(5)[3].repeat_interleave(6))


def test_autocast_runs_in_its_precision_and_keeps_that_of_the_weights():
    layer, x = HighwayLSTM(4, 6), torch.randn(3, 5, 4)
    expected = layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(x)
        found.float().sum().backward()
    assert found.dtype == torch.bfloat16
    assert_close(found.float(), expected, atol=0.03, rtol=0.03)
    assert layer.recurrent_weight.grad.dtype == torch.float32


class Kernels(TorchDispatchMode):
    """Counts calls that compute: on a GPU each is a kernel."""

    number = 0
    views = ("view", "select", "slice", "transpose", ".t.", "unbind", "split", "detach", "squeeze")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.number += not any(name in str(func) for name in self.views)
        return func(*args, **(kwargs or {}))


def test_a_step_has_nine_kernels_and_its_backward_five():
    counts = []
    for num_tokens in (10, 11):
        layer, x = HighwayLSTM(4, 6, 0.1), torch.randn(2, num_tokens, 4)
        with Kernels() as forward:
            states = layer(x)
        with Kernels() as backward:
            states.sum().backward()
        counts.append((forward.number, backward.number))
    assert [after - before for before, after in zip(*counts, strict=True)] == [9, 5]
