"""CUDA graphs of embedding, simulated on a CPU: what they compute, copy and keep."""

import contextlib
import gc
import weakref
from collections.abc import Iterator
from itertools import chain

import pytest
import torch
from torch import Tensor

from elmore.embed.cuda_graph import CUDAGraphRunner
from elmore.model.state import LSTMState
from tests.support.simulated_cuda_graphs import SimulatedCUDAGraph, simulate_cuda_graphs

ROWS, WIDTH = 3, 4


def run(gate_inputs, mask, states, reset_mask, reset_states):
    """Something recurrent, in place of two layers of LSTMs."""
    outputs, after, inputs = [], [], gate_inputs
    for state, reset_to in zip(states, reset_states, strict=True):
        output, cell = state
        steps = []
        for step in range(inputs.shape[1]):
            reset = reset_mask[:, step, None]
            output, cell = torch.where(reset, reset_to[0], output), torch.where(reset, *reset_to)
            new_cell = torch.tanh(cell + output + inputs[:, step])
            cell = torch.where(mask[:, step, None], new_cell, cell)
            output = cell / 2
            steps.append(output)
        inputs = torch.stack(steps, dim=1)
        outputs.append(inputs)
        after.append(LSTMState(output, cell))
    return outputs, after


def some_states(num_rows: int = ROWS) -> list[LSTMState]:
    return [LSTMState(*torch.randn(2, num_rows, WIDTH)) for _ in range(2)]


def masks(num_steps: int) -> Iterator[Tensor]:
    return (torch.rand(ROWS, num_steps) < chance for chance in (0.9, 0.3))


def in_buffer(runner: CUDAGraphRunner, num_steps: int) -> Tensor:
    buffer = runner.gate_inputs_buffer(num_steps * ROWS, torch.zeros(0, WIDTH))
    return buffer.normal_().view(num_steps, ROWS, WIDTH).swapaxes(0, 1)


def parts(states: list[LSTMState]) -> list[Tensor]:
    return list(chain.from_iterable(states))


@pytest.fixture
def replays(monkeypatch):
    return simulate_cuda_graphs(monkeypatch)


@pytest.mark.parametrize("lengths", [[2] * 9, [2, 4, 6] * 5, [6, 4, 2] * 5])
def test_chunks_of_any_lengths_get_what_eager_execution_computes(replays, lengths):
    runner, reset_states, texts = CUDAGraphRunner(run), some_states(), 3
    for _ in range(texts):  # each begins with the states of none before
        states = expected_states = reset_states
        for num_steps in lengths:
            gate_inputs, (mask, reset_mask) = in_buffer(runner, num_steps), masks(num_steps)
            expected, expected_states = run(
                gate_inputs, mask, expected_states, reset_mask, reset_states
            )
            outputs, states = runner(gate_inputs, mask, states, reset_mask, reset_states)
            torch.testing.assert_close(outputs, expected, rtol=0, atol=0)
            torch.testing.assert_close(parts(states), parts(expected_states), rtol=0, atol=0)
    assert len(set(replays)) == len(set(lengths))
    assert len(replays) == texts * len(lengths) - 2 * len(set(lengths))


def test_a_runner_does_not_write_to_what_it_is_given(replays):
    runner, reset_states = CUDAGraphRunner(run), some_states()
    inputs, (mask, reset_mask) = torch.randn(ROWS, 5, WIDTH), masks(5)
    states = some_states()
    given = [inputs, mask, reset_mask, *parts(states), *parts(reset_states)]
    before = [each.clone() for each in given]
    others = [torch.randn(ROWS, 5, WIDTH), *masks(5), some_states(), some_states()]
    for _ in range(4):
        runner(inputs, mask, states, reset_mask, reset_states)
        runner(others[0], others[1], others[3], others[2], others[4])
        runner(others[0], others[1], others[3], others[2], reset_states)
    assert replays
    torch.testing.assert_close(given, before, rtol=0, atol=0)


def test_other_reset_states_are_not_mistaken_for_those_of_a_graph(replays):
    runner, states, resets = CUDAGraphRunner(run), some_states(), [some_states() for _ in range(2)]
    inputs, (mask, _) = torch.randn(ROWS, 2, WIDTH), masks(2)
    for _ in range(4):
        for reset_states in resets:
            arguments = (inputs, mask, states, ~mask, reset_states)
            torch.testing.assert_close(runner(*arguments)[0], run(*arguments)[0])
    assert len(set(replays)) == 2


def test_in_the_middle_of_a_text_only_masks_are_copied_before_a_replay(replays, monkeypatch):
    copy, copied = torch._foreach_copy_, []

    def count(to, source):
        copied.append([each.dtype for each in to])
        copy(to, source)

    runner = CUDAGraphRunner(run)
    reset_states = states = some_states()
    for _ in range(3):
        _, states = runner(in_buffer(runner, 2), *arguments(states, reset_states))
    monkeypatch.setattr(torch, "_foreach_copy_", count)
    for _ in range(2):
        _, states = runner(in_buffer(runner, 2), *arguments(states, reset_states))
    assert copied == [[torch.bool] * 2] * 2


def arguments(states, reset_states, num_steps: int = 2):
    mask, reset_mask = masks(num_steps)
    return mask, states, reset_mask, reset_states


def test_gate_inputs_have_the_same_memory_in_each_chunk_that_is_not_longer(replays):
    runner, like = CUDAGraphRunner(run), torch.zeros(9, 8)
    first = runner.gate_inputs_buffer(6, like)
    assert first.shape == (6, 8)
    assert runner.gate_inputs_buffer(4, like).shape == (4, 8)
    assert runner.gate_inputs_buffer(4, like).data_ptr() == first.data_ptr()
    assert CUDAGraphRunner(run).gate_inputs_buffer(6, like).data_ptr() != first.data_ptr()
    assert runner.gate_inputs_buffer(7, like).shape == (7, 8)


def test_no_graph_keeps_memory_of_shorter_chunks_alive(replays):
    runner, states = CUDAGraphRunner(run), some_states()
    buffers = []
    for num_steps in (2, 4, 6, 4, 2):
        for _ in range(3):
            runner(in_buffer(runner, num_steps), *arguments(states, states, num_steps))
        buffers.append(weakref.ref(in_buffer(runner, num_steps)._base))
    gc.collect()
    assert [each() is None for each in buffers] == [True, True, False, False, False]
    assert len(set(replays)) >= 5  # those of 2 and 4 steps are captured again


def test_graphs_of_all_lengths_share_the_memory_that_they_allocate(replays):
    runner, states = CUDAGraphRunner(run), some_states()
    kept = {}
    for _ in range(3):
        for num_steps in (6, 4, 2):
            kept[num_steps], _ = runner(
                in_buffer(runner, num_steps), *arguments(states, states, num_steps)
            )
    assert len(set(replays)) == 3
    assert all(output.isnan().all() for num_steps in (6, 4) for output in kept[num_steps])
    assert all(output.isfinite().all() for output in kept[2])


def test_a_graph_keeps_no_larger_tensor_alive(replays):
    runner, states = CUDAGraphRunner(run), some_states()
    text = torch.zeros(ROWS, 50, WIDTH)
    for _ in range(3):
        runner(text[:, 7:9], *arguments(states, states))
    assert replays
    alive = weakref.ref(text)
    del text
    gc.collect()
    assert alive() is None


def test_a_graph_is_captured_on_the_device_of_its_tensors_in_a_stream_of_that_device(monkeypatch):
    """Which need not be the current device."""
    seen: list[object] = []

    @contextlib.contextmanager
    def record(name: str, *arguments: object) -> Iterator[None]:
        seen.append((name, *arguments))
        yield
        seen.append(f"end of {name}")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimulatedCUDAGraph([]))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(torch.cuda, "device", lambda device: record("device", device))
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, pool, stream: record("graph", stream))
    runner, states = CUDAGraphRunner(run), some_states()
    for _ in range(3):
        runner(torch.zeros(ROWS, 2, WIDTH), *arguments(states, states))
    assert seen == [
        ("device", torch.device("cpu")),
        ("graph", "stream of cpu"),
        "end of graph",
        "end of device",
    ]
