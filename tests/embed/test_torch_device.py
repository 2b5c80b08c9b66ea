"""Arrays that travel in one piece are the same at the other end; where graphs are captured."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from elmore.embed.torch_device import (
    CUDAGraphRunner,
    PinnedFetch,
    TorchDevice,
    buffer_size,
    fill_buffer,
    split_buffer,
    to_device,
)

ARRAYS = [
    np.arange(7),
    np.arange(12).reshape(3, 4).T,
    np.array([[True, False, True]]),
    np.zeros((0, 3), dtype=np.int64),
    np.array([0.1], dtype=np.float32),
]


def assert_same(found: list[torch.Tensor]) -> None:
    assert len(found) == len(ARRAYS)
    for tensor, array in zip(found, ARRAYS, strict=True):
        np.testing.assert_array_equal(tensor.cpu().numpy(), array, strict=True)


def test_arrays_are_found_again_in_what_they_were_packed_into():
    packed = torch.empty(buffer_size(ARRAYS), dtype=torch.uint8)
    fill_buffer(ARRAYS, packed.numpy())
    assert_same(split_buffer(packed, ARRAYS))


def test_a_cpu_uses_the_arrays_without_a_copy():
    assert_same(to_device(ARRAYS, torch.device("cpu")))


def test_arrays_on_the_same_device_are_not_copied():
    tensor = torch.randn(3)
    assert np.shares_memory(PinnedFetch(tensor).numpy(), tensor.numpy())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_arrays_are_copied_to_a_busy_gpu_and_back():
    busy = torch.randn(4096, 4096, device="cuda")
    for _ in range(20):
        busy = busy @ busy
    result = to_device(ARRAYS, busy.device)
    assert all(tensor.is_cuda for tensor in result)
    home = PinnedFetch(result[0] + 1)
    assert_same(result)
    np.testing.assert_array_equal(home.numpy(), ARRAYS[0] + 1)


def test_a_graph_is_captured_on_the_device_of_its_tensors_in_a_stream_of_that_device(monkeypatch):
    """Which need not be the current device; a graph of torch, without a GPU, is a stub here."""
    seen: list[object] = []

    @contextlib.contextmanager
    def record(name: str, *arguments: object) -> Iterator[None]:
        seen.append((name, *arguments))
        yield
        seen.append(f"end of {name}")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: None))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(torch.cuda, "device", lambda device: record("device", device))
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, stream: record("graph", stream))
    runner = CUDAGraphRunner(lambda gate_inputs, *_: ([gate_inputs], []))
    inputs, mask = torch.zeros(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)
    for _ in range(3):
        runner(inputs, mask, [], mask, [])
    assert seen == [
        ("device", torch.device("cpu")),
        ("graph", "stream of cpu"),
        "end of graph",
        "end of device",
    ]


def test_threads_on_a_cpu_do_not_share_the_memory_of_gate_inputs():
    device = TorchDevice(torch.zeros(1))
    one, other = (device.gate_inputs_buffer(0, 6, 8) for _ in range(2))
    assert one.data_ptr() != other.data_ptr()


def test_on_a_gpu_gate_inputs_have_the_same_memory_in_each_chunk_that_is_not_larger():
    device = TorchDevice(torch.zeros(1))
    device.type = "cuda"
    first = device.gate_inputs_buffer(0, 6, 8)
    assert device.gate_inputs_buffer(0, 4, 8).shape == (4, 8)
    assert device.gate_inputs_buffer(0, 4, 8).data_ptr() == first.data_ptr()
    assert device.gate_inputs_buffer(1, 6, 8).data_ptr() != first.data_ptr()
    assert device.gate_inputs_buffer(0, 7, 8).shape == (7, 8)


@pytest.fixture
def runner(monkeypatch):
    """A runner that returns its gate inputs; its graphs are stubs that compute nothing anew."""
    context = contextlib.nullcontext()
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: None))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "device", lambda device: context)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, stream: context)
    return CUDAGraphRunner(lambda gate_inputs, *_: ([gate_inputs], []))


def test_a_graph_reads_gate_inputs_where_they_are_and_copies_them_from_elsewhere(runner):
    inputs, mask = torch.zeros(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)
    for _ in range(3):
        (static,), _ = runner(inputs, mask, [], mask, [])
    assert static.data_ptr() == inputs.data_ptr()
    (static,), _ = runner(inputs + 1, mask, [], mask, [])
    assert static.data_ptr() == inputs.data_ptr()
    assert static.unique().tolist() == [1]


def test_a_graph_keeps_no_larger_tensor_alive(runner):
    text, mask = torch.zeros(1, 50, 4), torch.ones(1, 1, dtype=torch.bool)
    for _ in range(3):
        (static,), _ = runner(text[:, 7:8], mask, [], mask, [])
    assert static.untyped_storage().nbytes() == static.nbytes
