"""Work in several CUDA streams gives what the same work gives in one."""

import pytest
import torch

from elmore.model.cuda_streams import run_in_streams

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="this machine has no CUDA device"
)


def test_one_function_needs_no_second_stream():
    assert run_in_streams([lambda: 1], []) == [1]
    assert run_in_streams([], []) == []


@pytest.mark.gpu
@needs_gpu
def test_functions_read_what_was_launched_before_them_and_are_waited_for():
    side = [torch.cuda.Stream()]
    for _ in range(20):
        x = torch.rand(2048, 2048, device="cuda")
        base = x @ x  # still running when the functions are launched
        first, second = run_in_streams([lambda b=base: b @ b, lambda b=base: b.T @ b], side)
        assert torch.equal(first + second, base @ base + base.T @ base)


@pytest.mark.gpu
@needs_gpu
def test_a_function_that_fails_in_a_side_stream_leaves_nothing_running_beside_the_current_one():
    x = torch.rand(4096, 4096, device="cuda")
    written = torch.zeros_like(x)

    def fail() -> None:
        for _ in range(10):
            torch.mm(x, x, out=written)
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        run_in_streams([lambda: None, fail], [torch.cuda.Stream()])
    assert torch.equal(written.clone(), x @ x)
