"""All layers of a direction in one native call: the bits of one layer after another."""

import jaxtyping
import pytest
import torch

from elmore.errors import DataError
from elmore.model import native
from elmore.model.bilm import BACKWARD, BiLM
from elmore.model.config import BiLMConfig, LSTMConfig, WordsConfig
from elmore.model.lstm.call import LSTMState
from elmore.model.precision import with_precision

pytestmark = pytest.mark.skipif(not native.available(), reason="there is no native library here")


def make_model(**changes) -> BiLM:
    lstm = LSTMConfig(num_layers=3, cell_dim=70, output_dim=20, cell_clip=0.4, **changes)
    words = WordsConfig(num_words=9, dim=20)
    return BiLM(BiLMConfig(characters=None, words=words, projection=False, lstm=lstm)).eval()


def make_states(num_rows: int, num_layers: int = 3) -> list[LSTMState]:
    return [
        LSTMState(torch.randn(num_rows, 20), torch.randn(num_rows, 70)) for _ in range(num_layers)
    ]


@pytest.mark.parametrize("precision", ["exact", "fast"])
@pytest.mark.parametrize("num_rows", [1, 5, 40, 101])
@pytest.mark.parametrize("skip", [True, False])
@torch.no_grad()
def test_a_stack_gives_the_bits_of_its_layers_one_after_another(precision, num_rows, skip):
    model = with_precision(make_model(skip_connections=skip), precision)
    stacks = model.native_stacks()
    vectors, mask = torch.randn(num_rows, 4, 20), torch.rand(num_rows, 4) < 0.8
    states, resets = (
        make_states(num_rows),
        [LSTMState(*(part.expand(num_rows, -1) for part in state)) for state in make_states(1)],
    )
    reset_mask = torch.rand(num_rows, 4) < 0.3
    for projected in (True, False):
        for reset in ((), (reset_mask, resets)):
            inputs = stacks[BACKWARD].project_inputs(vectors) if projected else vectors
            arguments = (inputs, mask, states, *reset)
            found = stacks[BACKWARD](*arguments, projected=projected)
            expected = model.run_direction(BACKWARD, *arguments, projected=projected)
            for one, other in zip(found[0], expected[0], strict=True):
                assert torch.equal(one, other)
            for one, other in zip(found[1], expected[1], strict=True):
                assert torch.equal(one.output, other.output)
                assert torch.equal(one.cell, other.cell)


def test_where_another_backend_runs_the_layers_there_are_no_native_stacks():
    model = make_model()
    model.use_backend("eager")
    assert model.native_stacks() is None
    assert make_model().double().native_stacks() is None


def make_arguments() -> dict:
    return {
        "inputs": torch.zeros(2, 3, 280),
        "mask": torch.ones(2, 3, dtype=torch.bool),
        "states": make_states(2),
        "reset_mask": torch.zeros(2, 3, dtype=torch.bool),
        "reset_states": make_states(2),
    }


def with_part(part: int, tensor: torch.Tensor) -> list[LSTMState]:
    """Return states of which the last one has another output (0) or cell (1)."""
    states = make_states(2)
    name = LSTMState._fields[part]
    return [*states[:2], states[2]._replace(**{name: tensor})]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": torch.zeros(2, 3, 20)}, r"inputs must have the shape \(2, 3, 280\)"),
        ({"inputs": torch.zeros(2, 4, 280)}, r"inputs must have the shape \(2, 3, 280\)"),
        ({"inputs": torch.zeros(2, 3, 280).half()}, "inputs must be torch.float32 on cpu"),
        ({"inputs": torch.zeros(2, 3, 280, device="meta")}, "found torch.float32 on meta"),
        ({"mask": torch.ones(2, 3)}, "the mask must be torch.bool"),
        ({"mask": torch.ones(2, dtype=torch.bool)}, "the mask must have 2 dimensions"),
        ({"states": make_states(2, num_layers=2)}, "a state for each of 3 layers is expected"),
        ({"states": make_states(1)}, r"the output state must have the shape \(2, 20\)"),
        ({"states": with_part(0, torch.zeros(2, 20).half())}, "the output state must be"),
        ({"states": with_part(1, torch.zeros(2, 70).half())}, "the cell state must be"),
        ({"states": with_part(1, torch.zeros(2, 69))}, "the cell state must have the shape"),
        ({"reset_mask": torch.zeros(2, 3)}, "the reset mask must be torch.bool"),
        ({"reset_mask": torch.zeros(2, 2, dtype=torch.bool)}, "the reset mask must have the shape"),
        ({"reset_states": make_states(2, num_layers=1)}, "a state for each of 3 layers"),
        ({"reset_states": with_part(0, torch.zeros(2, 19))}, "the output to reset to must have"),
        ({"reset_states": with_part(1, torch.zeros(2, 70).double())}, "the cell to reset to must"),
    ],
)
def test_tensors_that_do_not_fit_are_not_read(monkeypatch, changes, message):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as without the tests' hook
    stack = make_model().native_stacks()[0]
    stack(**make_arguments())
    with pytest.raises(DataError, match=message):
        stack(**{**make_arguments(), **changes})


@pytest.mark.parametrize("inputs", [torch.zeros(2, 3, 19), torch.zeros(2, 3, 20).double()])
def test_inputs_that_do_not_fit_are_not_projected(inputs):
    with pytest.raises(DataError, match="inputs must"):
        make_model().native_stacks()[0].project_inputs(inputs)


@pytest.mark.parametrize("precision", ["exact", "fast"])
@torch.no_grad()
def test_a_stack_shares_no_memory_with_the_weights(precision):
    model = with_precision(make_model(), precision)
    stack, states = model.native_stacks()[0], make_states(2)
    arguments = (torch.randn(2, 3, 20), torch.ones(2, 3, dtype=torch.bool), states)
    before, _ = stack(*arguments, projected=False)
    for weight in model.parameters():
        weight.data.add_(1)  # torch does not count this write
    after, _ = stack(*arguments, projected=False)
    assert all(map(torch.equal, after, before))
