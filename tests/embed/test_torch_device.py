"""Arrays that travel in one piece are the same at the other end."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from elmore.embed import device
from elmore.embed.torch_device import (
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


@pytest.mark.parametrize(("gigabytes", "is_large"), [(48, False), (64, True), (141, True)])
def test_a_gpu_has_the_limits_of_its_size(monkeypatch, gigabytes, is_large):
    properties = SimpleNamespace(total_memory=gigabytes * 1e9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    gpu = TorchDevice(torch.zeros(1))
    assert gpu.limits == device.CPU
    gpu.type = "cuda"
    assert gpu.limits == (device.LARGE_GPU if is_large else device.GPU)
