"""Simulate CUDA graphs on a CPU: what is captured runs when the graph is replayed, as on a GPU.

A graph reads and writes the memory that it had when it was captured. Graphs of one pool share
what they allocate, so a replay destroys the results of the others. Used by embed/test_cuda_graph
and contracts/test_bulk.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class SimulatedCUDAGraph(TorchDispatchMode):
    """Stands for `torch.cuda.CUDAGraph`."""

    def __init__(self, replays: list[int]) -> None:
        super().__init__()
        self.allocated: list[torch.Tensor] = []
        self._replays = replays
        self._calls, self._before, self._pool = [], [], [self]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # it would import torch's compiler, which takes seconds

    def pool(self) -> list["SimulatedCUDAGraph"]:
        """Return the graphs that share memory with this one."""
        return self._pool

    def share(self, pool: list["SimulatedCUDAGraph"]) -> None:
        """Share the memory of a pool."""
        self._pool = pool
        pool.append(self)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        inputs = _tensors((args, kwargs))
        written = _written(func, args, kwargs)
        self._before += [(tensor, tensor.clone()) for tensor in written]
        results = func(*args, **kwargs)
        known = {tensor.untyped_storage().data_ptr() for tensor in inputs}
        made = [
            each for each in _tensors(results) if each.untyped_storage().data_ptr() not in known
        ]
        self.allocated += made
        self._calls.append((func, args, kwargs, made))
        return results

    def undo(self) -> None:
        """Restore what was written: a GPU runs nothing while it captures."""
        for tensor, before in reversed(self._before):
            tensor.copy_(before)
        _destroy(self.allocated)

    def replay(self) -> None:
        """Run it."""
        self._replays.append(id(self))
        for other in self._pool:
            if other is not self:
                _destroy(other.allocated)
        for func, args, kwargs, made in self._calls:
            results = func(*args, **kwargs)
            if made:
                for old, new in zip(made, _tensors(results), strict=True):
                    old.copy_(new)


def simulate_cuda_graphs(patch: pytest.MonkeyPatch) -> list[int]:
    """Let torch capture such graphs on a CPU; return the ids of those that are replayed."""
    replays: list[int] = []

    @contextmanager
    def capture(graph, *, pool, stream) -> Iterator[None]:
        assert stream == "a stream"
        if pool:
            graph.share(pool)
        with graph:
            yield
        graph.undo()

    patch.setattr(torch.cuda, "CUDAGraph", lambda: SimulatedCUDAGraph(replays))
    patch.setattr(torch.cuda, "Stream", lambda device: "a stream")
    patch.setattr(torch.cuda, "device", lambda device: nullcontext())
    patch.setattr(torch.cuda, "graph", capture)
    return replays


def _tensors(tree: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _written(func, args, kwargs) -> list[torch.Tensor]:
    written = []
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = kwargs[argument.name] if argument.name in kwargs else args[number]
            written += _tensors(value)
    return written


def _destroy(tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        tensor.fill_(float("nan") if tensor.is_floating_point() else 1)
