"""All layers of a direction in one native call: the bits of one layer after another."""

import pytest
import torch

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


def test_inputs_of_another_shape_are_not_read():
    stack = make_model().native_stacks()[0]
    mask = torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(AssertionError):
        stack(torch.zeros(2, 3, 20), mask, make_states(2))
    with pytest.raises(AssertionError):
        stack(torch.zeros(2, 3, 280), mask, make_states(2, num_layers=2))


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
