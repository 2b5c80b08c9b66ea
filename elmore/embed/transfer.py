"""To a GPU and home again, without waiting for it.

A GPU does what it is told in its own time, and who waits for it cannot tell it what comes next. It
reads and writes by itself what is pinned in the host's memory. To pin takes time, so much travels
at once; memory that has been pinned is used again by torch.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

_ALIGNED = 16  # bytes


def sent(arrays: Sequence[np.ndarray], device: torch.device) -> list[Tensor]:
    """Send arrays to a device, all in one piece; a GPU fetches them when it gets there."""
    if device.type != "cuda":
        return [torch.from_numpy(array).to(device) for array in arrays]
    packed = torch.empty(packed_size(arrays), dtype=torch.uint8, pin_memory=True)
    pack(arrays, packed.numpy())
    return unpacked(packed.to(device, non_blocking=True), arrays)


def packed_size(arrays: Sequence[np.ndarray]) -> int:
    """Say how many bytes `pack` fills."""
    return _ends(arrays)[-1]


def pack(arrays: Sequence[np.ndarray], into: np.ndarray) -> None:
    """Put the bytes of arrays one after another."""
    for array, end in zip(arrays, _ends(arrays)[1:], strict=True):
        begin = end - _room(array)
        into[begin : begin + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def unpacked(packed: Tensor, like: Sequence[np.ndarray]) -> list[Tensor]:
    """Find the arrays again in what `pack` filled, wherever that is by now."""
    found = []
    for array, end in zip(like, _ends(like)[1:], strict=True):
        begin = end - _room(array)
        dtype = torch.from_numpy(array[:0]).dtype
        found.append(packed[begin : begin + array.nbytes].view(dtype).view(array.shape))
    return found


def _ends(arrays: Sequence[np.ndarray]) -> list[int]:
    return [0, *accumulate(map(_room, arrays))]


def _room(array: np.ndarray) -> int:
    return -(-array.nbytes // _ALIGNED) * _ALIGNED


class Fetched:
    """A tensor on its way home: who asks for it waits until it is there."""

    def __init__(self, tensor: Tensor) -> None:
        self._arrived = None
        self._home = tensor
        if tensor.is_cuda:
            self._home = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._home.copy_(tensor, non_blocking=True)
            self._arrived = torch.cuda.Event()
            self._arrived.record(torch.cuda.current_stream(tensor.device))

    def numpy(self) -> np.ndarray:
        """Give it once it is there."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._home.cpu().numpy()
