"""Every LSTM kernel equals the definition: values, states and gradients, whatever the shape.

One that works in place has no gradients: `readers` are all that give values and states.
The same cases run on a GPU under `pytest -m gpu`, where what lies between the matmuls is Triton's.
"""

import dataclasses
import math
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from elmore.model.bilm import BiLM
from elmore.model.config import BiLMConfig, LSTMConfig
from elmore.model.lstm import eager, in_c, reference, training
from elmore.model.lstm.layer import BACKENDS, ProjectedLSTM
from elmore.model.lstm.reference import LSTMState, LSTMWeights, StateReset
from tests.support.sweeps import pick

GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
]
pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # no bfloat16 in this CPU
on_a_gpu = [pytest.param("cuda", marks=GPU)]
everywhere = pytest.mark.parametrize("device", ["cpu", *on_a_gpu])
kernels = pytest.mark.parametrize("kernel", [training], ids=["training"])
readers = pytest.mark.parametrize("kernel", [training, eager], ids=["training", "eager"])

RESULTS = ("outputs", "last output", "last cell")
LEAVES = ("inputs", "first output", "first cell", "input", "recurrent", "bias", "projection")


@dataclasses.dataclass(frozen=True)
class Case:
    """What a kernel is given, but for the numbers: the seed draws them alike for every type."""

    batch: int = 3
    tokens: int = 5
    input: int = 4
    output: int = 3
    cell: int = 7
    projection: bool = True
    padded: bool = True
    resets: bool = True
    cell_clip: float | None = 0.4
    output_clip: float | None = 0.3
    forget_bias: float = 1.0
    driven: bool = False
    seed: int = 0

    def results(self, kernel, leaves: list, mask, resets: StateReset | None) -> tuple:
        inputs, output, cell, *rest = leaves
        weights = LSTMWeights(*rest, *[None] * (not self.projection))
        if self.driven:
            inputs = reference.project_inputs(inputs, weights.input)
            weights = weights._replace(input=None)
        outputs, end = kernel.run(
            inputs,
            mask,
            LSTMState(output, cell),
            weights,
            forget_bias=self.forget_bias,
            cell_clip=self.cell_clip,
            output_clip=self.output_clip,
            resets=resets,
        )
        return outputs, *end

    def draw(self, dtype: torch.dtype, device: str) -> tuple:
        """Leaves, mask, resets, and a gradient for each result."""
        source = torch.Generator().manual_seed(self.seed)

        def normal(*shape: int, fan: int = 1) -> torch.Tensor:
            drawn = torch.randn(shape, generator=source, dtype=torch.double) / fan**0.5
            return drawn.to(device, dtype)

        batch, tokens, gates = self.batch, self.tokens, 4 * self.cell
        output = self.output if self.projection else self.cell
        weights = [normal(gates, self.input, fan=self.input), normal(gates, output, fan=output)]
        weights += [normal(gates), normal(output, self.cell, fan=self.cell)][: 1 + self.projection]
        leaves = [
            normal(batch, tokens, self.input),
            normal(batch, output),
            normal(batch, self.cell),
        ]
        lengths = torch.randint(0, tokens + 1, (batch, 1), generator=source)
        mask = torch.arange(tokens) < (lengths if self.padded else torch.full_like(lengths, tokens))
        at = torch.rand(batch, tokens, generator=source) < 0.3
        to = LSTMState(normal(batch, output), normal(batch, self.cell))
        resets = StateReset(at.to(device), to) if self.resets else None
        wanted = normal(batch, tokens, output), normal(batch, output), normal(batch, self.cell)
        return [*leaves, *weights], mask.to(device), resets, wanted

    def everything(self, kernel, dtype: torch.dtype = torch.double, device: str = "cpu") -> dict:
        """Values, states and gradients, by name."""
        leaves, mask, resets, wanted = self.draw(dtype, device)
        for leaf in leaves:
            leaf.requires_grad_()
        results = self.results(kernel, leaves, mask, resets)
        pairs = zip(wanted, results, strict=True)
        grads = torch.autograd.grad(results, leaves, [grad.to(result) for grad, result in pairs])
        found = dict(zip(RESULTS, results, strict=True))
        found |= {f"gradient of {name}": grad for name, grad in zip(LEAVES, grads, strict=False)}
        return {name: value.detach() for name, value in found.items()}


clips = st.sampled_from([None, 0.1, 0.4, 3.0])
cases = st.builds(
    Case,
    batch=st.integers(1, 6),
    tokens=st.integers(1, 7),
    input=st.integers(1, 6),
    output=st.integers(1, 6),
    cell=st.integers(1, 9),
    projection=st.booleans(),
    padded=st.booleans(),
    resets=st.booleans(),
    cell_clip=clips,
    output_clip=clips,
    forget_bias=st.sampled_from([0.0, 1.0]),
    driven=st.booleans(),
    seed=st.integers(0, 1000),
)
WIDE = [  # neither all in one block of a GPU kernel, nor whole blocks
    Case(batch=33, tokens=4, input=40, output=24, cell=1100),
    Case(batch=16, tokens=20, input=64, output=64, cell=256, padded=False),
    Case(batch=5, tokens=3, input=17, output=13, cell=2049, resets=False, padded=False),
    Case(batch=7, tokens=6, input=9, cell=1030, projection=False),
    Case(batch=64, tokens=8, input=128, output=128, cell=1024, cell_clip=3.0, output_clip=3.0),
]


NARROW = Case(batch=8, tokens=6, input=16, output=12, cell=40)
half = pytest.mark.parametrize(  # a CPU may be very slow at it
    ("device", "case"), [("cpu", NARROW), *(pytest.param("cuda", case, marks=GPU) for case in WIDE)]
)
wide = pytest.mark.parametrize("case", WIDE, ids=lambda case: f"{case.batch}x{case.cell}")


@cache
def truth(case: Case) -> dict[str, torch.Tensor]:
    return case.everything(reference)


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Measure the difference against what is expected."""
    difference = (found.cpu().double() - expected).norm().item()
    return difference and difference / expected.norm().item()


def assert_near(found: dict, expected: dict, tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert distance(found[name], value) <= tolerance, name


@kernels
@given(case=cases)
@settings(max_examples=pick(16, 80))
def test_a_kernel_is_the_definition_in_double_precision(kernel, case):
    found, expected = case.everything(kernel), case.everything(reference)
    for name, value in expected.items():
        assert_close(found[name], value, rtol=1e-10, atol=1e-10, msg=lambda text, n=name: n + text)


@kernels
@given(case=cases)
@settings(max_examples=pick(6, 30))
def test_a_kernel_is_the_definition_in_single_precision(kernel, case):
    found = case.everything(kernel, torch.float)
    assert {value.dtype for value in found.values()} == {torch.float}
    assert_near(found, truth(case), 1e-5)


@readers
@given(case=cases)
@settings(max_examples=pick(12, 60))
def test_a_reader_is_the_definition_and_changes_nothing_it_is_given(kernel, case):
    leaves, mask, resets, _ = case.draw(torch.double, "cpu")
    given = [*leaves, mask, *(resets.state if resets else ())]
    copies = [each.clone() for each in given]
    expected = case.results(reference, leaves, mask, resets)
    for found, value in zip(case.results(kernel, leaves, mask, resets), expected, strict=True):
        assert_close(found, value, rtol=1e-12, atol=1e-12)
    assert all(torch.equal(*pair) for pair in zip(given, copies, strict=True))


def test_a_step_in_c_leaves_double_precision_to_torch():
    gates, driven, cells, shown = torch.randn(4, 8, 3, dtype=torch.double)
    given = [gates, driven, torch.randn(8, dtype=torch.double), cells[:2], shown[:2]]
    expected = [each.clone() for each in given]
    eager.step(*expected, 3.0)
    in_c.step(*given, 3.0)
    assert_close(given[3:], expected[3:], rtol=0, atol=0)


@pytest.mark.skipif(not in_c.available(), reason="no C compiler is here")
@given(case=cases)
@settings(max_examples=pick(12, 60))
def test_cells_in_c_are_those_of_the_definition(case):
    leaves, mask, resets, _ = case.draw(torch.float, "cpu")
    found = case.results(in_c, leaves, mask, resets)
    expected = case.results(reference, *case.draw(torch.double, "cpu")[:3])
    for value, truth in zip(found, expected, strict=True):
        assert value.dtype == torch.float
        assert distance(value, truth) <= 1e-5


@pytest.mark.skipif(not in_c.available(), reason="no C compiler is here")
@pytest.mark.parametrize("batch", [1, 8, 9, 60])
def test_threads_change_no_bit_in_c(use_threads, batch):
    case = Case(batch=batch, tokens=6, input=40, output=64, cell=1024)  # enough for several
    leaves, mask, resets, _ = case.draw(torch.float, "cpu")
    use_threads(1)
    alone = case.results(in_c, leaves, mask, resets)
    for threads in (2, 3):
        use_threads(threads)
        for found, expected in zip(case.results(in_c, leaves, mask, resets), alone, strict=True):
            assert torch.equal(found, expected)


@pytest.mark.skipif(not in_c.available(), reason="no C compiler is here")
@pytest.mark.parametrize("clip", [None, 3.0])
@pytest.mark.parametrize("columns", [1, 4, 7, 96])
def test_a_step_in_c_bears_any_number_and_every_lane_gets_the_same_bits(clip, columns):
    extremes = torch.tensor([0.0, -0.0, 1e-30, -1e-9, 0.5, -8.99, 9.01, 30.0, -1e4, 1e30])
    columns_alike = extremes[torch.randint(10, (4 * 50, 1))].expand(-1, columns).contiguous()
    driven, bias = torch.zeros_like(columns_alike), torch.randn(200)
    cell = torch.tensor([0.0, 1e-9, 0.5, -3.0, 10.0])[torch.randint(5, (50, 1))]
    cell = cell.expand(-1, columns).contiguous()
    old, hidden = cell.clone(), torch.empty_like(cell)
    in_c.step(columns_alike.clone(), driven, bias, cell, hidden, clip)
    assert (cell == cell[:, :1]).all()
    assert (hidden == hidden[:, :1]).all()
    i, f, g, o = (columns_alike.double() + bias[:, None]).chunk(4)
    truth = f.sigmoid() * old + i.sigmoid() * g.tanh()
    truth = truth if clip is None else truth.clamp(-clip, clip)
    assert_close(cell.double(), truth, rtol=0, atol=4e-6)  # a gate is 4e-7 off, a cell up to 10
    assert_close(hidden.double(), o.sigmoid() * cell.double().tanh(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_kernel_is_chosen_by_name(name, monkeypatch):
    called = []
    for known, kernel in BACKENDS.items():
        monkeypatch.setattr(
            kernel,
            "run",
            lambda *args, known=known, run=kernel.run, **named: (
                called.append(known) or run(*args, **named)
            ),
        )
    model = BiLM(BiLMConfig(lstm=LSTMConfig(cell_dim=8, output_dim=4)))
    model.use_backend(name)
    vectors = torch.randn(2, 3, 4)
    with torch.no_grad():
        model.run_direction(
            0, vectors, vectors[:, :, 0] < 9, model.zero_state(2, vectors).direction(0)
        )
    assert name in called


def test_an_unknown_kernel_is_refused():
    with pytest.raises(ValueError, match="no kernel 'fastest'; expected auto or one of reference"):
        BiLM(BiLMConfig(lstm=LSTMConfig(cell_dim=8, output_dim=4))).use_backend("fastest")


def test_driven_inputs_are_the_gates_without_the_state():
    case = Case()
    (inputs, _, _, *rest), _, _, _ = case.draw(torch.double, "cpu")
    weights = LSTMWeights(*rest)
    driven = reference.project_inputs(inputs, weights.input)
    assert_close(driven, inputs @ weights.input.T)
    assert reference.project_inputs(driven, None) is driven
    expected = weights.bias.clone()
    expected[case.cell : 2 * case.cell] += 0.5  # the gates are input, forget and two more
    assert_close(reference.bias_with_forget(weights.bias, forget_bias=0.5), expected)


@kernels
@everywhere
@wide
def test_wide_layers_are_the_definition_in_single_precision(kernel, device, case):
    found = case.everything(kernel, torch.float, device)
    assert {value.device.type for value in found.values()} == {device}
    assert_near(found, truth(case), 1e-5)


@kernels
@pytest.mark.parametrize("device", on_a_gpu)
@wide
def test_on_a_gpu_a_kernel_is_the_definition_in_double_precision(kernel, device, case):
    assert_near(case.everything(kernel, torch.double, device), truth(case), 1e-10)


@kernels
@half
def test_under_autocast_cells_and_weights_stay_precise_and_the_rest_is_near(kernel, device, case):
    case = dataclasses.replace(case, cell_clip=None, output_clip=None)
    with torch.autocast(device, torch.bfloat16):
        found = case.everything(kernel, torch.float, device)
    types = {name: value.dtype for name, value in found.items()}
    assert types.pop("outputs") == types.pop("last output") == torch.bfloat16
    assert set(types.values()) == {torch.float}
    assert_near(found, truth(case), 2e-2)


@kernels
@half
def test_under_autocast_a_kernel_is_as_near_as_the_definition(kernel, device, case):
    """Which gradients a clip stops is decided by a hair: then both are further off."""
    with torch.autocast(device, torch.bfloat16):
        found = case.everything(kernel, torch.float, device)
        plain = case.everything(reference, torch.float, device)
    for name, value in truth(case).items():
        allowed = max(2e-2, 1.5 * distance(plain[name], value))
        assert distance(found[name], value) <= allowed, name


@kernels
@pytest.mark.parametrize("clip", [None, 0.2])
def test_gradients_are_those_of_finite_differences(kernel, clip):
    case = Case(batch=2, tokens=3, input=2, output=2, cell=3, cell_clip=clip, output_clip=clip)
    leaves, mask, resets, _ = case.draw(torch.double, "cpu")
    leaves = [leaf.requires_grad_() for leaf in leaves]
    assert torch.autograd.gradcheck(lambda *x: case.results(kernel, [*x], mask, resets), leaves)


def on_the_edge(kernel, device: str) -> list[torch.Tensor]:
    """Let cell and output be a clip's very value: no matmul, so no rounding, has a say."""
    one = torch.ones(1, 1, dtype=torch.double, device=device)
    bias = 100 * one.new_tensor([1, -10, 1, 1])  # the forget gate gets as much back
    first, projection = one.clone().requires_grad_(), one.clone().requires_grad_()

    def run(output_clip: float | None) -> tuple[torch.Tensor, LSTMState]:
        zeros = one.new_zeros(4, 1)
        return kernel.run(
            one[None],
            one.bool(),
            LSTMState(one, first),
            LSTMWeights(zeros, zeros, bias, projection),
            forget_bias=1000.0,
            cell_clip=1.5,  # half of the first cell, and an open gate
            output_clip=output_clip,
        )

    free, end = run(None)
    assert end.cell.item() == 1.5
    outputs, end = run(free.item())
    return list(torch.autograd.grad(outputs.sum() + end.cell.sum(), [first, projection]))


@kernels
@everywhere
def test_what_lies_on_the_edge_of_a_clip_passes_its_gradient(kernel, device):
    squashed = math.tanh(1.5)
    first, projection = on_the_edge(kernel, device)
    assert first.item() == pytest.approx(0.5 * (1 + (1 - squashed**2)))  # by cell and output
    assert projection.item() == pytest.approx(squashed)


@pytest.mark.parametrize("kernel", [training, eager, *[in_c] * in_c.available()])
@everywhere
def test_no_clip_hides_a_nan(kernel, device):
    case = Case(padded=False, resets=False)
    leaves, mask, resets, _ = case.draw(torch.float, device)
    leaves[0][0, 2, 0] = torch.nan
    outputs, output, cell = case.results(kernel, leaves, mask, resets)
    assert outputs[0, 2:].isnan().all()
    assert output[0].isnan().all()
    assert cell[0].isnan().all()
    assert outputs[1:].isfinite().all()


@kernels
def test_a_start_that_is_learned_gets_its_gradient(kernel):
    case, grads = Case(padded=False, cell_clip=None, output_clip=None), []
    for each in (kernel, reference):
        leaves, mask, resets, _ = case.draw(torch.double, "cpu")
        to = [part.requires_grad_() for part in resets.state]
        outputs, *_ = case.results(each, leaves, mask, resets)
        grads.append(torch.autograd.grad(outputs.square().sum(), to))
    assert_close(*grads)
    assert grads[0][0].abs().sum() > 0


@kernels
@everywhere
def test_the_way_back_can_be_gone_twice_and_bits_never_change(kernel, device):
    case = WIDE[0]
    leaves, mask, resets, wanted = case.draw(torch.float, device)
    leaves = [leaf.requires_grad_() for leaf in leaves]
    results = case.results(kernel, leaves, mask, resets)
    first = torch.autograd.grad(results, leaves, wanted, retain_graph=True)
    second = torch.autograd.grad(results, leaves, wanted)
    anew = case.everything(kernel, torch.float, device)
    for a, b, c in zip(first, second, list(anew.values())[3:], strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


@kernels
@pytest.mark.parametrize("device", on_a_gpu)
def test_a_kernel_never_waits_for_the_gpu(kernel, device):
    case = WIDE[0]
    leaves, mask, resets, wanted = case.draw(torch.float, device)
    leaves = [leaf.requires_grad_() for leaf in leaves]
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.autograd.grad(case.results(kernel, leaves, mask, resets), leaves, wanted)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@kernels
def test_precision_is_that_of_the_way_forth_wherever_the_way_back_is_called(kernel):
    case = NARROW
    leaves, mask, resets, wanted = case.draw(torch.float, "cpu")
    leaves = [leaf.requires_grad_() for leaf in leaves]
    results = case.results(kernel, leaves, mask, resets)
    plain = torch.autograd.grad(results, leaves, wanted, retain_graph=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(torch.autograd.grad(results, leaves, wanted), plain, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("device", "learning", "chosen"),
    [
        ("cpu", True, reference),
        ("cpu", False, in_c if in_c.available() else eager),
        pytest.param("cuda", False, reference, marks=GPU),
        pytest.param("cuda", True, training, marks=GPU),
    ],
)
def test_a_gpu_learns_by_hand_and_a_cpu_reads_in_place(monkeypatch, device, learning, chosen):
    calls = []
    for kernel in (reference, training, eager, in_c):
        monkeypatch.setattr(
            kernel,
            "run",
            lambda *args, of=kernel, run=kernel.run, **kw: (calls.append(of), run(*args, **kw))[1],
        )
    layer = ProjectedLSTM(LSTMConfig(cell_dim=7, output_dim=4)).to(device)
    inputs = torch.randn(2, 3, 4, device=device)
    state = LSTMState(inputs.new_zeros(2, 4), inputs.new_zeros(2, 7))
    with torch.set_grad_enabled(learning):
        layer(inputs, inputs.new_ones(2, 3).bool(), state)
    assert calls == [chosen]
