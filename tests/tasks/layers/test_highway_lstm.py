import os
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from elmore.model.lstm import training
from elmore.tasks.layers import highway_lstm, highway_steps, highway_triton
from elmore.tasks.layers.highway_lstm import HighwayLSTM, HighwayLSTMFunction

INTERPRETED = find_spec("triton") is not None and os.environ.get("TRITON_INTERPRET") == "1"
GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
on_triton = pytest.mark.parametrize(
    "device",
    [
        pytest.param(
            "cpu",
            marks=pytest.mark.skipif(not INTERPRETED, reason="needs Triton and TRITON_INTERPRET=1"),
        ),
        pytest.param("cuda", marks=GPU),
    ],
)


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


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=GPU)])
def test_a_gpu_gives_the_values_and_gradients_of_a_cpu(device):
    layer, x = drawn(HighwayLSTM(30, 40)).double(), torch.randn(7, 9, 30).double()
    results = []
    for place in ("cpu", device):
        layer = layer.to(place)
        states = layer(x.to(place))
        gradients = torch.autograd.grad(states.square().sum(), list(layer.parameters()))
        results.append([states, *gradients])
    for here, there in zip(*results, strict=True):
        assert_close(there.cpu(), here)


@on_triton
@pytest.mark.parametrize("dtype", [torch.double, torch.float, torch.bfloat16])
@pytest.mark.parametrize(
    ("batch", "tokens", "width", "rate"),
    [(3, 5, 6, 0.4), (1, 4, 130, 0.0), (2, 1, 128, 0.3), (5, 3, 300, 0.1)],
)
def test_fused_steps_have_the_values_and_gradients_of_torch(
    device, batch, tokens, width, rate, dtype, monkeypatch
):
    """In bfloat16 under autocast; inputs and the gradient of the states are not contiguous."""
    half = dtype == torch.bfloat16
    layer = drawn(HighwayLSTM(4, width, rate)).to(device, torch.float if half else dtype)
    x = torch.randn(tokens, 4, batch).to(layer.bias).permute(2, 0, 1).requires_grad_()
    weighted = torch.randn(batch, width, tokens).to(layer.bias).transpose(1, 2)
    results = []
    for steps in (highway_triton, highway_steps):
        monkeypatch.setattr(highway_lstm, "_steps", lambda device, steps=steps: steps)
        torch.manual_seed(3)
        with torch.autocast(device, torch.bfloat16, enabled=half):
            states = layer(x)
        assert states.dtype == dtype
        gradients = torch.autograd.grad((states * weighted).sum(), [x, *layer.parameters()])
        results.append([states, *gradients])
    for fused, expected in zip(*results, strict=True):
        assert fused.isfinite().all()
        if half:
            assert (fused - expected).norm() <= 2e-2 * expected.norm()
        else:
            assert_close(fused, expected)


@on_triton
def test_fused_steps_read_projected_inputs_and_masks_of_any_layout(device, monkeypatch):
    projected = torch.randn(3, 4, 36, device=device).transpose(0, 1).requires_grad_()
    weight, mask = torch.randn(30, 6, device=device), torch.rand(6, 3, device=device).T
    results = []
    for steps in (highway_triton, highway_steps):
        monkeypatch.setattr(highway_lstm, "_steps", lambda device, steps=steps: steps)
        states = HighwayLSTMFunction.apply(projected, weight, mask)
        results.append([states, *torch.autograd.grad(states.square().sum(), projected)])
    for fused, expected in zip(*results, strict=True):
        assert_close(fused, expected)


@pytest.mark.parametrize(
    ("device", "found", "steps"),
    [
        ("cuda", True, highway_triton),
        ("cuda", False, highway_steps),
        ("cpu", True, highway_steps),
    ],
)
def test_steps_are_fused_on_a_gpu_that_has_triton(device, found, steps, monkeypatch):
    monkeypatch.setattr(training, "find_spec", lambda name: (name == "triton" and found) or None)
    assert highway_lstm._steps(torch.device(device)) is steps


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


def kernels_of_a_step() -> list[int]:
    """Count the kernels that one more token adds, forward and backward."""
    counts = []
    for num_tokens in (10, 11):
        layer, x = HighwayLSTM(4, 6, 0.1), torch.randn(2, num_tokens, 4)
        with Kernels() as forward:
            states = layer(x)
        with Kernels() as backward:
            states.sum().backward()
        counts.append((forward.number, backward.number))
    return [after - before for before, after in zip(*counts, strict=True)]


def test_in_torch_a_step_has_nine_kernels_and_its_backward_five():
    assert kernels_of_a_step() == [9, 5]


def test_in_triton_a_step_and_its_backward_have_a_matmul_and_one_kernel_each(monkeypatch):
    launched = []
    monkeypatch.setattr(highway_lstm, "_steps", lambda device: highway_triton)
    for name in ("_finish_step", "_differentiate_step"):
        kernel = {(2, 1): lambda *_, name=name: launched.append(name)}  # by rows and blocks
        monkeypatch.setattr(highway_triton, name, kernel)
    assert kernels_of_a_step() == [1, 1]
    assert launched.count("_finish_step") == launched.count("_differentiate_step") == 10 + 11
