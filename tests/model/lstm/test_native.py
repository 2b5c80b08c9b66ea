"""All layers of a direction in one native call: the bits of one layer after another."""

import jaxtyping
import numpy as np
import pytest
import torch

from elmore.errors import DataError
from elmore.model import native
from elmore.model.bilm import BACKWARD, BiLM
from elmore.model.config import BiLMConfig, LSTMConfig, WordsConfig
from elmore.model.precision import with_precision
from elmore.model.state import LSTMState

pytestmark = pytest.mark.skipif(not native.available(), reason="there is no native library here")


def make_model(*, cell_dim: int = 70, **changes) -> BiLM:
    lstm = LSTMConfig(num_layers=3, cell_dim=cell_dim, output_dim=20, cell_clip=0.4, **changes)
    words = WordsConfig(num_words=9, dim=20)
    return BiLM(BiLMConfig(characters=None, words=words, projection=False, lstm=lstm)).eval()


def random(*shape: int) -> np.ndarray:
    return torch.randn(*shape).numpy()


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def make_states(num_rows: int, num_layers: int = 3, cell_dim: int = 70) -> list[LSTMState]:
    return [LSTMState(random(num_rows, 20), random(num_rows, cell_dim)) for _ in range(num_layers)]


def as_tensors(states: list[LSTMState]) -> list[LSTMState]:
    return [LSTMState(*(torch.tensor(part) for part in state)) for state in states]


@pytest.mark.parametrize("precision", ["exact", "fast"])
@pytest.mark.parametrize("num_rows", [1, 5, 40, 101])
@pytest.mark.parametrize("skip", [True, False])
@torch.no_grad()
def test_a_stack_gives_the_bits_of_its_layers_one_after_another(precision, num_rows, skip):
    model = with_precision(make_model(skip_connections=skip), precision)
    stack = model.pack().stacks[BACKWARD]
    vectors, mask = random(num_rows, 4, 20), (torch.rand(num_rows, 4) < 0.8).numpy()
    states = make_states(num_rows)
    resets = [
        LSTMState(*(np.broadcast_to(part, (num_rows, part.shape[1])) for part in state))
        for state in make_states(1)
    ]
    reset_mask = (torch.rand(num_rows, 4) < 0.3).numpy()
    for projected in (True, False):
        for reset in ((), (reset_mask, resets)):
            inputs = stack.project_inputs(vectors) if projected else vectors
            found = stack(inputs, mask, states, *reset, projected=projected)
            tensors = map(torch.from_numpy, (inputs, mask))
            again = (torch.from_numpy(reset_mask), as_tensors(resets)) if reset else ()
            expected = model.run_direction(
                BACKWARD, *tensors, as_tensors(states), *again, projected=projected
            )
            for one, other in zip(found[0], expected[0], strict=True):
                assert np.array_equal(one, other)
            for one, other in zip(found[1], expected[1], strict=True):
                assert np.array_equal(one.output, other.output)
                assert np.array_equal(one.cell, other.cell)


@pytest.mark.parametrize("precision", ["exact", "fast"])
@pytest.mark.parametrize("num_rows", [1, 5, 101])
@pytest.mark.parametrize("cell_dim", [70, 128])
@pytest.mark.parametrize("projected", [True, False])
@torch.no_grad()
def test_rows_of_a_table_give_the_bits_of_a_batch_at_their_positions(
    precision, num_rows, cell_dim, projected
):
    model = with_precision(make_model(cell_dim=cell_dim), precision)
    stack, shape = model.pack().stacks[BACKWARD], (4, num_rows)
    vectors = random(9, 20)
    table = stack.project_inputs(vectors[None])[0]
    rows = torch.randint(9, shape).numpy()
    active = (torch.rand(shape) < 0.8).numpy()
    active.reshape(-1)[0] = True
    places = torch.randperm(2 * active.sum()).numpy()[: active.sum()]
    positions = np.full(shape, -1)
    positions[active] = places
    reset_mask = (torch.rand(num_rows, 4) < 0.3).numpy()
    states, resets = (make_states(num_rows, cell_dim=cell_dim) for _ in range(2))
    before = random(3, 2 * active.sum(), 40)
    out = before.copy()
    ends = stack.run_packed(
        *(table if projected else vectors, rows, positions, states, reset_mask, resets),
        out=out[:, :, 20:],
        projected=projected,
    )
    inputs = table[rows].swapaxes(0, 1)
    outputs, expected_ends = stack(inputs, active.T, states, reset_mask, resets)
    for found, expected in zip(out, outputs, strict=True):
        assert np.array_equal(found[places, 20:], expected.swapaxes(0, 1)[active])
    for one, other in zip(ends, expected_ends, strict=True):
        assert np.array_equal(one.output, other.output)
        assert np.array_equal(one.cell, other.cell)
    untouched = np.delete(np.arange(out.shape[1]), places)
    assert np.array_equal(out[:, untouched], before[:, untouched])
    assert np.array_equal(out[:, :, :20], before[:, :, :20])


def make_packed_arguments() -> dict:
    return {
        "table": zeros(9, 280),
        "rows": np.zeros((3, 2), np.int64),
        "positions": np.arange(6).reshape(3, 2),
        "states": make_states(2),
        "reset_mask": np.zeros((2, 3), bool),
        "reset_states": make_states(2),
        "out": zeros(3, 6, 20),
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"table": zeros(9, 279)}, r"the table must have the shape \(9, 280\)"),
        ({"table": np.zeros((9, 280))}, "the table must be float32"),
        ({"projected": False}, r"the table must have the shape \(9, 20\), found \(9, 280\)"),
        ({"rows": np.full((3, 2), 9)}, "the rows must be from 0 to 8, found 9 to 9"),
        ({"rows": np.full((3, 2), -1)}, "the rows must be from 0 to 8, found -1 to -1"),
        ({"rows": np.zeros((3, 2), np.int32)}, "the rows must be int64"),
        ({"positions": np.arange(6)}, r"the positions must have the shape \(3, 2\)"),
        ({"positions": np.arange(1, 7).reshape(3, 2)}, "the positions must be from -1 to 5"),
        ({"positions": np.arange(-2, 4).reshape(3, 2)}, "the positions must be from -1 to 5"),
        ({"rows": np.zeros(6, np.int64)}, "the rows must have 2 dimensions and the output 3"),
        ({"out": zeros(6)}, "found 2 and 1"),
        ({"out": zeros(2, 6, 20)}, r"the output must have the shape \(3, 6, 20\)"),
        ({"out": np.zeros((3, 6, 20))}, "the output must be float32"),
        ({"states": make_states(1)}, r"the output state must have the shape \(2, 20\)"),
        ({"reset_mask": np.zeros((3, 2), bool)}, "the reset mask must have the shape"),
    ],
)
def test_indices_that_do_not_fit_are_not_read(monkeypatch, changes, message):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as without the tests' hook
    stack = make_model().pack().stacks[0]
    stack.run_packed(**make_packed_arguments())
    with pytest.raises(DataError, match=message):
        stack.run_packed(**{**make_packed_arguments(), **changes})


def test_where_another_backend_runs_the_layers_there_is_no_native_network():
    model = make_model()
    model.use_backend("eager")
    assert model.pack() is None
    assert make_model().double().pack() is None


def make_arguments() -> dict:
    return {
        "inputs": zeros(2, 3, 280),
        "mask": np.ones((2, 3), bool),
        "states": make_states(2),
        "reset_mask": np.zeros((2, 3), bool),
        "reset_states": make_states(2),
    }


def with_part(part: int, array: np.ndarray) -> list[LSTMState]:
    """Return states of which the last one has another output (0) or cell (1)."""
    states = make_states(2)
    name = LSTMState._fields[part]
    return [*states[:2], states[2]._replace(**{name: array})]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": zeros(2, 3, 20)}, r"inputs must have the shape \(2, 3, 280\)"),
        ({"inputs": zeros(2, 4, 280)}, r"inputs must have the shape \(2, 3, 280\)"),
        ({"inputs": zeros(2, 3, 280).astype(np.float16)}, "inputs must be float32, found float16"),
        ({"mask": zeros(2, 3)}, "the mask must be bool"),
        ({"mask": np.ones(2, bool)}, "the mask must have 2 dimensions"),
        ({"states": make_states(2, num_layers=2)}, "a state for each of 3 layers is expected"),
        ({"states": make_states(1)}, r"the output state must have the shape \(2, 20\)"),
        ({"states": with_part(0, zeros(2, 20).astype(np.float16))}, "the output state must be"),
        ({"states": with_part(1, zeros(2, 70).astype(np.float16))}, "the cell state must be"),
        ({"states": with_part(1, zeros(2, 69))}, "the cell state must have the shape"),
        ({"reset_mask": zeros(2, 3)}, "the reset mask must be bool"),
        ({"reset_mask": np.zeros((2, 2), bool)}, "the reset mask must have the shape"),
        ({"reset_states": make_states(2, num_layers=1)}, "a state for each of 3 layers"),
        ({"reset_states": with_part(0, zeros(2, 19))}, "the output to reset to must have"),
        ({"reset_states": with_part(1, np.zeros((2, 70)))}, "the cell to reset to must"),
    ],
)
def test_arrays_that_do_not_fit_are_not_read(monkeypatch, changes, message):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as without the tests' hook
    stack = make_model().pack().stacks[0]
    stack(**make_arguments())
    with pytest.raises(DataError, match=message):
        stack(**{**make_arguments(), **changes})


@pytest.mark.parametrize("inputs", [zeros(2, 3, 19), np.zeros((2, 3, 20))])
def test_inputs_that_do_not_fit_are_not_projected(inputs):
    with pytest.raises(DataError, match="inputs must"):
        make_model().pack().stacks[0].project_inputs(inputs)


@pytest.mark.parametrize("precision", ["exact", "fast"])
@torch.no_grad()
def test_a_stack_shares_no_memory_with_the_weights(precision):
    model = with_precision(make_model(), precision)
    stack, states = model.pack().stacks[0], make_states(2)
    arguments = (random(2, 3, 20), np.ones((2, 3), bool), states)
    before, _ = stack(*arguments, projected=False)
    for weight in model.parameters():
        weight.data.add_(1)  # torch does not count this write
    after, _ = stack(*arguments, projected=False)
    assert all(map(np.array_equal, after, before))
