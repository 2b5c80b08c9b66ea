"""Every backend of the LSTM equals the definition: values, states and gradients, in any shape.

Only `training` has gradients of its own. The same cases run on a GPU under `pytest -m gpu`, where
Triton runs what lies between the matrix products.
"""

import dataclasses
import math
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from elmore.errors import ConfigError, DataError
from elmore.model import native
from elmore.model.bilm import BiLM
from elmore.model.config import BiLMConfig, LSTMConfig
from elmore.model.lstm import backends, reference
from elmore.model.lstm.backends import BACKENDS
from elmore.model.lstm.call import Call, LSTMState, LSTMWeights, StateReset, bias_with_forget
from elmore.model.lstm.layer import ProjectedLSTM
from elmore.model.packed_weights import PackedWeights
from elmore.model.quantize import Int8Rows
from tests.support.int8 import quantize_rows
from tests.support.simulated_bf16 import simulate_bf16_units
from tests.support.sweeps import pick

GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
]
pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # no bfloat16 in this CPU
on_a_gpu = [pytest.param("cuda", marks=GPU)]
everywhere = pytest.mark.parametrize("device", ["cpu", *on_a_gpu])
trained = pytest.mark.parametrize("backend", ["training"])
exact = pytest.mark.parametrize("backend", ["eager", "training", "native"])
native_only = pytest.mark.skipif(not native.available(), reason="there is no native library here")

FAST = {"native_int8", "eager_bf16"}
RESULTS = ("outputs", "last output", "last cell")
LEAVES = ("inputs", "first output", "first cell", "input", "recurrent", "bias", "projection")


@dataclasses.dataclass(frozen=True)
class Case:
    """What a backend is given, but for the numbers: the seed draws them alike for every type."""

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
    projected: bool = False
    int8: bool = False
    seed: int = 0

    def results(self, backend: str, leaves: list, mask, reset: StateReset | None) -> tuple:
        call = self.call(leaves, mask, reset, backend)
        outputs, end = backends.run(call, backend)
        return outputs, *end

    def call(self, leaves: list, mask, reset: StateReset | None, backend: str = "auto") -> Call:
        inputs, output, cell, *rest = leaves
        weights = LSTMWeights(*rest, *[None] * (not self.projection))
        if self.int8:
            rows = (
                weight if weight is None or weight.dim() == 1 else quantize_rows(weight)
                for weight in weights
            )
            weights = LSTMWeights(*rows)
            if output.dtype != torch.float:
                for weight in weights:
                    if isinstance(weight, Int8Rows):
                        weight.to(output.dtype)
        if self.projected:
            precision = "fast" if backend in FAST else "exact"
            inputs = backends.project_inputs(inputs, weights, PackedWeights(), precision, backend)
        return Call.create(
            inputs,
            mask,
            LSTMState(output, cell),
            weights,
            reset,
            projected=self.projected,
            forget_bias=self.forget_bias,
            cell_clip=self.cell_clip,
            output_clip=self.output_clip,
            precision="fast" if backend in FAST else "exact",
        )

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
        expected = normal(batch, tokens, output), normal(batch, output), normal(batch, self.cell)
        return [*leaves, *weights], mask.to(device), resets, expected

    def everything(self, backend, dtype: torch.dtype = torch.double, device: str = "cpu") -> dict:
        """Values, states and gradients, by name."""
        assert not self.int8
        leaves, mask, resets, expected = self.draw(dtype, device)
        for leaf in leaves:
            leaf.requires_grad_()
        results = self.results(backend, leaves, mask, resets)
        pairs = zip(expected, results, strict=True)
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
    projected=st.booleans(),
    seed=st.integers(0, 1000),
)
WIDE = [  # neither all in one block of a GPU backend, nor whole blocks
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
    return case.everything("reference")


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Measure the difference against what is expected."""
    difference = (found.cpu().double() - expected).norm().item()
    return difference and difference / expected.norm().item()


def assert_near(found: dict, expected: dict, tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert distance(found[name], value) <= tolerance, name


@trained
@given(case=cases)
@settings(max_examples=pick(16, 80))
def test_a_backend_is_the_definition_in_double_precision(backend, case):
    result, expected = case.everything(backend), case.everything("reference")
    for name, value in expected.items():
        assert_close(result[name], value, rtol=1e-10, atol=1e-10, msg=lambda text, n=name: n + text)


@trained
@given(case=cases)
@settings(max_examples=pick(6, 30))
def test_a_backend_is_the_definition_in_single_precision(backend, case):
    result = case.everything(backend, torch.float)
    assert {value.dtype for value in result.values()} == {torch.float}
    assert_near(result, truth(case), 1e-5)


def runs_here(backend: str, monkeypatch) -> None:
    """Skip what this CPU has no instructions for; simulate bf16."""
    if backend == "eager_bf16":
        simulate_bf16_units(monkeypatch)
    elif not BACKENDS[backend].available(torch.device("cpu")):
        pytest.skip(f"this machine has no {backend}")


ROWS = pick([1, 2, 6, 7, 13, 49, 200], [*range(1, 20), 47, 48, 49, 50, 95, 96, 97, 127, 200])


@pytest.mark.parametrize("num_rows", ROWS)
@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_is_the_definition_for_any_number_of_rows(
    backend, int8, num_rows, monkeypatch
):
    runs_here(backend, monkeypatch)
    for case in (
        Case(batch=num_rows, cell=70, output=33, input=20, int8=int8, seed=num_rows),
        Case(batch=num_rows, cell=24, input=9, projection=False, int8=int8, cell_clip=None),
        Case(batch=num_rows, cell=200, output=40, input=40, int8=int8, resets=False, padded=False),
        Case(batch=num_rows, cell=17, output=8, tokens=3, int8=int8, projected=True),
    ):
        leaves, mask, reset, _ = case.draw(torch.float, "cpu")
        given_ = [*leaves, mask, *(reset.state if reset else ())]
        copies = [each.clone() for each in given_]
        result = case.results(backend, leaves, mask, reset)
        expected = case.results("reference", *case.draw(torch.double, "cpu")[:3])
        tolerance = 3e-2 if backend in FAST else 1e-5
        for value, wanted in zip(result, expected, strict=True):
            assert value.dtype == torch.float
            assert distance(value, wanted) <= tolerance
        assert all(torch.equal(*pair) for pair in zip(given_, copies, strict=True))
        assert not result[0][~mask].any()


@exact
@given(case=cases, int8=st.booleans())
@settings(max_examples=pick(12, 60))
def test_an_exact_backend_is_the_definition(backend, case, int8):
    dtype, tolerance = (torch.float, 1e-5) if backend == "native" else (torch.double, 1e-12)
    if not BACKENDS[backend].available(torch.device("cpu")):
        pytest.skip("there is no native library here")
    case = dataclasses.replace(case, int8=int8)
    result = case.results(backend, *case.draw(dtype, "cpu")[:3])
    expected = case.results("reference", *case.draw(torch.double, "cpu")[:3])
    for value, wanted in zip(result, expected, strict=True):
        assert value.dtype == dtype
        assert distance(value, wanted) <= tolerance


stable = pytest.mark.parametrize("backend", ["native", "native_int8"])


@stable
@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("projected", [False, True])
def test_a_row_has_the_same_bits_in_any_batch_and_in_any_chunk_of_steps(
    backend, int8, projected, monkeypatch
):
    runs_here(backend, monkeypatch)
    case = Case(batch=110, tokens=5, input=40, output=40, cell=200, int8=int8, resets=False)
    leaves, mask, _, _ = case.draw(torch.float, "cpu")
    reset = StateReset(
        torch.rand(110, 5) < 0.3, LSTMState(*(part[:1].expand(110, -1) for part in leaves[1:3]))
    )

    def run(rows: slice, steps: slice, state: list, projected: bool) -> tuple:
        part = dataclasses.replace(case, projected=projected)
        few = [leaves[0][rows, steps], *state, *leaves[3:]]
        there = LSTMState(*(each[rows] for each in reset.state))
        return part.results(
            backend, few, mask[rows, steps], StateReset(reset.mask[rows, steps], there)
        )

    outputs, *end = run(slice(None), slice(None), leaves[1:3], False)
    for begin, count in ((0, 1), (19, 3), (40, 6), (55, 18), (60, 50)):
        rows = slice(begin, begin + count)
        first, *middle = run(rows, slice(0, 2), [part[rows] for part in leaves[1:3]], projected)
        second, *last = run(rows, slice(2, 5), middle, projected)
        assert torch.equal(torch.cat([first, second], dim=1), outputs[rows])
        assert all(torch.equal(part, whole[rows]) for part, whole in zip(last, end, strict=True))


@stable
@pytest.mark.parametrize("batch", [1, 8, 60])
def test_threads_change_no_bit(use_threads, backend, batch, monkeypatch):
    runs_here(backend, monkeypatch)
    case = Case(batch=batch, tokens=6, input=40, output=64, cell=1024)  # enough for several
    drawn = case.draw(torch.float, "cpu")[:3]
    use_threads(1)
    alone = case.results(backend, *drawn)
    for threads in (2, 3, 3, 3, 25, 25):  # with more than there are cores, some come late
        use_threads(threads)
        for result, expected in zip(case.results(backend, *drawn), alone, strict=True):
            assert torch.equal(result, expected)


@pytest.mark.parametrize("projection", [True, False])
def test_dropout_after_training_on_a_cpu_is_dropout_after_the_definition(projection):
    case = Case(batch=6, tokens=9, projection=projection)
    drawn = case.draw(torch.float, "cpu")[:3]
    dropped = []
    for backend in ("training", "reference"):
        outputs, *_ = case.results(backend, *drawn)
        torch.manual_seed(0)  # which elements become zero depends on the layout in memory
        dropped.append(torch.nn.functional.dropout(outputs, 0.5))
    assert_close(*dropped)


@native_only
@pytest.mark.parametrize("clip", [None, 3.0])
def test_native_cells_bear_any_number_and_have_the_same_bits_at_any_place(clip):
    extremes = torch.tensor([0.0, -0.0, 1e-30, -1e-9, 0.5, -8.99, 9.01, 30.0, -1e4, 1e30])
    gates = extremes[torch.randint(10, (1, 4, 1))].expand(7, 4, 50).flatten(1)[:, None]
    cell = torch.tensor([0.0, 1e-9, 0.5, -3.0, 10.0])[torch.randint(5, (1, 1))].expand(7, 50)
    weights = LSTMWeights(torch.zeros(200, 3), torch.zeros(200, 50), torch.randn(200), None)
    weights.bias[:] = weights.bias.view(4, 50)[:, :1].expand(4, 50).flatten()
    state, mask = LSTMState(torch.zeros(7, 50), cell), torch.ones(7, 1, dtype=torch.bool)
    call = Call.create(gates, mask, state, weights, projected=True, cell_clip=clip)
    hidden, (_, new) = backends.run(call, "native")
    assert (new == new[0, 0]).all()
    assert (hidden == hidden[0, 0, 0]).all()
    i, f, g, o = (gates[:, 0].double() + weights.bias).chunk(4, dim=1)
    gold = f.sigmoid() * cell + i.sigmoid() * g.tanh()
    gold = gold if clip is None else gold.clamp(-clip, clip)
    assert_close(new.double(), gold, rtol=0, atol=4e-6)  # a gate is 4e-7 off, a cell up to 10
    assert_close(hidden[:, 0].double(), o.sigmoid() * new.double().tanh(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["mask", "reset"])
def test_masks_of_numbers_mean_the_same_and_other_numbers_are_refused(backend, name, monkeypatch):
    runs_here(backend, monkeypatch)
    case = Case()
    leaves, mask, reset, _ = case.draw(torch.float, "cpu")

    def run(convert) -> tuple:
        masks = {"mask": mask, "reset": reset.mask}
        masks[name] = convert(masks[name])
        return case.results(backend, leaves, masks["mask"], reset._replace(mask=masks["reset"]))

    expected = run(lambda given_: given_)
    for dtype in (torch.uint8, torch.int8, torch.int32, torch.long, torch.half, torch.double):
        for result, wanted in zip(run(lambda m, t=dtype: m.to(t)), expected, strict=True):
            assert torch.equal(result, wanted)
    with pytest.raises(DataError, match="a padding mask must be bool, or 1 where a token is"):
        run(lambda given_: given_.long() * 2)
    with pytest.raises(DataError, match="must have the shape"):
        run(lambda given_: given_[:, :-1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: {"inputs": c.inputs[:, :, 1:]}, r"inputs must have the shape \(3, 5, 4\)"),
        (lambda c: {"state": LSTMState(c.state.output[1:], c.state.cell)}, "the output state must"),
        (
            lambda c: {"state": LSTMState(c.state.output, c.state.cell[:, 1:])},
            "the cell state must",
        ),
        (lambda c: {"inputs": c.inputs.double()}, "inputs must be torch.float32 on cpu"),
        (
            lambda c: {"state": LSTMState(c.state.output.half(), c.state.cell)},
            "found torch.float16",
        ),
        (lambda c: {"inputs": c.inputs.to("meta")}, "found torch.float32 on meta"),
        (
            lambda c: {"reset": c.reset._replace(state=LSTMState(*(p[1:] for p in c.reset.state)))},
            "the output to reset to must",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused_for_every_backend(change, message):
    case = Case()
    call = case.call(*case.draw(torch.float, "cpu")[:3])
    with pytest.raises(DataError, match=message):
        dataclasses.replace(call, **change(call)).validate()


@pytest.mark.parametrize("name", BACKENDS)
def test_a_backend_is_chosen_by_name(name, monkeypatch):
    called = []
    for known, backend in BACKENDS.items():
        patched = dataclasses.replace(
            backend,
            run=lambda call, known=known: (called.append(known), reference.run(call))[1],
            available=lambda device: True,
        )
        monkeypatch.setitem(BACKENDS, known, patched)
    model = BiLM(BiLMConfig(lstm=LSTMConfig(cell_dim=8, output_dim=4)))
    model.use_backend(name)
    vectors = torch.randn(2, 3, 4)
    with torch.no_grad():
        states = model.zero_state(2, vectors).direction(0)
        model.run_direction(0, vectors, vectors[:, :, 0] < 9, states)
    assert set(called) == {name}


def test_an_unknown_backend_is_refused():
    with pytest.raises(ValueError, match="no backend 'fastest'; expected auto or one of native"):
        BiLM(BiLMConfig(lstm=LSTMConfig(cell_dim=8, output_dim=4))).use_backend("fastest")


def test_a_backend_that_cannot_run_a_call_is_refused():
    case = Case()
    call = case.call(*case.draw(torch.double, "cpu")[:3])
    with pytest.raises(
        ConfigError, match=r"the backend 'native' cannot run on cpu with torch\.float64"
    ):
        backends.run(call, "native")


def test_gate_inputs_are_the_gates_without_the_state():
    case = Case()
    (inputs, _, _, *rest), _, _, _ = case.draw(torch.double, "cpu")
    weights = LSTMWeights(*rest)
    for backend in ("reference", "eager"):
        result = backends.project_inputs(inputs, weights, PackedWeights(), "exact", backend)
        assert_close(result, inputs @ weights.input.T)
    expected = weights.bias.clone()
    expected[case.cell : 2 * case.cell] += 0.5  # the gates are input, forget and two more
    assert_close(bias_with_forget(weights.bias, forget_bias=0.5), expected)


@trained
@everywhere
@wide
def test_wide_layers_are_the_definition_in_single_precision(backend, device, case):
    result = case.everything(backend, torch.float, device)
    assert {value.device.type for value in result.values()} == {device}
    assert_near(result, truth(case), 1e-5)


@trained
@pytest.mark.parametrize("device", on_a_gpu)
@wide
def test_on_a_gpu_a_backend_is_the_definition_in_double_precision(backend, device, case):
    assert_near(case.everything(backend, torch.double, device), truth(case), 1e-10)


@trained
@half
def test_under_autocast_cells_and_weights_stay_precise_and_the_rest_is_near(backend, device, case):
    case = dataclasses.replace(case, cell_clip=None, output_clip=None)
    with torch.autocast(device, torch.bfloat16):
        result = case.everything(backend, torch.float, device)
    types = {name: value.dtype for name, value in result.items()}
    assert types.pop("outputs") == types.pop("last output") == torch.bfloat16
    assert set(types.values()) == {torch.float}
    assert_near(result, truth(case), 2e-2)


@trained
@half
def test_under_autocast_a_backend_is_as_near_as_the_definition(backend, device, case):
    """Which gradients a clip stops is decided by a hair: then both are further off."""
    with torch.autocast(device, torch.bfloat16):
        result = case.everything(backend, torch.float, device)
        plain = case.everything("reference", torch.float, device)
    for name, value in truth(case).items():
        allowed = max(2e-2, 1.5 * distance(plain[name], value))
        assert distance(result[name], value) <= allowed, name


@trained
@pytest.mark.parametrize("clip", [None, 0.2])
def test_gradients_are_those_of_finite_differences(backend, clip):
    case = Case(batch=2, tokens=3, input=2, output=2, cell=3, cell_clip=clip, output_clip=clip)
    leaves, mask, resets, _ = case.draw(torch.double, "cpu")
    leaves = [leaf.requires_grad_() for leaf in leaves]
    assert torch.autograd.gradcheck(lambda *x: case.results(backend, [*x], mask, resets), leaves)


def on_the_edge(backend, device: str) -> list[torch.Tensor]:
    """Let cell and output be a clip's very value: no matmul, so no rounding, has a say."""
    one = torch.ones(1, 1, dtype=torch.double, device=device)
    bias = 100 * one.new_tensor([1, -10, 1, 1])  # the forget gate gets as much back
    first, projection = one.clone().requires_grad_(), one.clone().requires_grad_()

    def run(output_clip: float | None) -> tuple[torch.Tensor, LSTMState]:
        zeros = one.new_zeros(4, 1)
        call = Call.create(
            one[None],
            one.bool(),
            LSTMState(one, first),
            LSTMWeights(zeros, zeros, bias, projection),
            forget_bias=1000.0,
            cell_clip=1.5,  # half of the first cell, and an open gate
            output_clip=output_clip,
        )
        return backends.run(call, backend)

    free, end = run(None)
    assert end.cell.item() == 1.5
    outputs, end = run(free.item())
    return list(torch.autograd.grad(outputs.sum() + end.cell.sum(), [first, projection]))


@trained
@everywhere
def test_a_value_at_the_edge_of_a_clip_passes_its_gradient(backend, device):
    squashed = math.tanh(1.5)
    first, projection = on_the_edge(backend, device)
    assert first.item() == pytest.approx(0.5 * (1 + (1 - squashed**2)))  # by cell and output
    assert projection.item() == pytest.approx(squashed)


@pytest.mark.parametrize("backend", ["training", "eager", "native", "native_int8"])
@everywhere
def test_no_clip_hides_a_nan(backend, device, monkeypatch):
    if device == "cpu":
        runs_here(backend, monkeypatch)
    elif BACKENDS[backend].devices == {"cpu"}:
        pytest.skip("it runs on the CPU alone")
    case = Case(padded=False, resets=False)
    leaves, mask, resets, _ = case.draw(torch.float, device)
    leaves[0][0, 2, 0] = torch.nan
    outputs, output, cell = case.results(backend, leaves, mask, resets)
    assert outputs[0, 2:].isnan().all()
    assert output[0].isnan().all()
    assert cell[0].isnan().all()
    assert outputs[1:].isfinite().all()


@trained
def test_a_start_that_is_learned_gets_its_gradient(backend):
    case, grads = Case(padded=False, cell_clip=None, output_clip=None), []
    for each in (backend, "reference"):
        leaves, mask, resets, _ = case.draw(torch.double, "cpu")
        to = [part.requires_grad_() for part in resets.state]
        outputs, *_ = case.results(each, leaves, mask, resets)
        grads.append(torch.autograd.grad(outputs.square().sum(), to))
    assert_close(*grads)
    assert grads[0][0].abs().sum() > 0


@trained
@everywhere
def test_backward_can_run_twice_with_the_same_bits(backend, device):
    case = WIDE[0]
    leaves, mask, resets, expected = case.draw(torch.float, device)
    leaves = [leaf.requires_grad_() for leaf in leaves]
    results = case.results(backend, leaves, mask, resets)
    first = torch.autograd.grad(results, leaves, expected, retain_graph=True)
    second = torch.autograd.grad(results, leaves, expected)
    anew = case.everything(backend, torch.float, device)
    for a, b, c in zip(first, second, list(anew.values())[3:], strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


@trained
@pytest.mark.parametrize("device", on_a_gpu)
def test_a_backend_never_waits_for_the_gpu(backend, device):
    case = WIDE[0]
    leaves, mask, resets, expected = case.draw(torch.float, device)
    leaves = [leaf.requires_grad_() for leaf in leaves]
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.autograd.grad(case.results(backend, leaves, mask, resets), leaves, expected)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@trained
def test_the_backward_pass_uses_the_precision_of_the_forward_pass(backend):
    case = NARROW
    leaves, mask, resets, expected = case.draw(torch.float, "cpu")
    leaves = [leaf.requires_grad_() for leaf in leaves]
    results = case.results(backend, leaves, mask, resets)
    plain = torch.autograd.grad(results, leaves, expected, retain_graph=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(torch.autograd.grad(results, leaves, expected), plain, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("device", "learning", "chosen"),
    [
        ("cpu", True, "training"),
        ("cpu", False, "native" if native.available() else "eager"),
        pytest.param("cuda", False, "eager", marks=GPU),
        pytest.param("cuda", True, "training", marks=GPU),
    ],
)
def test_the_table_chooses_by_device_and_gradient(monkeypatch, device, learning, chosen):
    calls = []
    for name, backend in BACKENDS.items():
        run = lambda call, name=name, run=backend.run: (calls.append(name), run(call))[1]  # noqa: E731
        monkeypatch.setitem(BACKENDS, name, dataclasses.replace(backend, run=run))
    layer = ProjectedLSTM(LSTMConfig(cell_dim=7, output_dim=4)).to(device)
    inputs = torch.randn(2, 3, 4, device=device)
    state = LSTMState(inputs.new_zeros(2, 4), inputs.new_zeros(2, 7))
    with torch.set_grad_enabled(learning):
        layer(inputs, inputs.new_ones(2, 3).bool(), state)
    assert calls == [chosen]


def test_unsupported_calls_fall_back_to_another_backend():
    layer = ProjectedLSTM(LSTMConfig(cell_dim=7, output_dim=4)).double()
    inputs, mask = torch.randn(2, 3, 4).double(), torch.ones(2, 3, dtype=torch.bool)
    state = LSTMState(inputs.new_zeros(2, 4), inputs.new_zeros(2, 7))
    with torch.no_grad():
        result, _ = layer(layer.project_inputs(inputs), mask, state, projected=True)
    layer.backend = "reference"
    assert_close(result, layer(inputs, mask, state)[0])


@pytest.mark.parametrize("device", on_a_gpu)
@pytest.mark.parametrize("backend", ["eager", "eager_bf16"])
@pytest.mark.parametrize("int8", [False, True])
def test_a_cuda_graph_captures_inference(backend, device, int8):
    case = Case(batch=33, tokens=4, input=24, output=24, cell=40, int8=int8)
    leaves, mask, reset, _ = case.draw(torch.float, device)
    call = case.call(leaves, mask, reset, backend)
    with torch.no_grad():
        expected = backends.run(call, backend)  # warm up: Triton compiles, weights are packed
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = backends.run(call, backend)
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(result[0], expected[0])
    assert all(map(torch.equal, result[1], expected[1]))


@pytest.mark.parametrize("device", on_a_gpu)
@pytest.mark.parametrize("backend", ["eager", "eager_bf16"])
@wide
def test_on_a_gpu_inference_is_the_definition(backend, device, case):
    result = case.results(backend, *case.draw(torch.float, device)[:3])
    expected = case.results("reference", *case.draw(torch.double, "cpu")[:3])
    for value, wanted in zip(result, expected, strict=True):
        assert distance(value, wanted) <= (3e-2 if backend in FAST else 1e-5)
