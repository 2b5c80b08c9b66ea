import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from elmore.tasks.layers.pooling import masked_max, masked_mean


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(0, 1000))
def test_only_what_is_there_is_pooled(lengths, seed):
    torch.manual_seed(seed)
    x = torch.randn(len(lengths), max(lengths), 3) - 2.0  # a zero behind the end would show
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    for row, length in enumerate(lengths):
        rows = [x[row, t].tolist() for t in range(length)]
        columns = list(zip(*rows, strict=True)) if rows else [(0.0,)] * 3
        assert_close(masked_max(x, mask)[row].tolist(), [max(c) for c in columns])
        assert_close(masked_mean(x, mask)[row].tolist(), [sum(c) / len(c) for c in columns])


def test_padding_gets_no_gradient():
    x = torch.randn(2, 3, 4, requires_grad=True)
    mask = torch.tensor([[True, False, False], [False, False, False]])
    (masked_max(x, mask) + masked_mean(x, mask)).sum().backward()
    assert_close(x.grad[0, 0], torch.full((4,), 2.0))
    assert not x.grad[0, 1:].any()
    assert not x.grad[1].any()


def test_half_precision_is_supported():
    x = torch.randn(2, 3, 4, dtype=torch.bfloat16)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    for pooled in (masked_max(x, mask), masked_mean(x, mask)):
        assert pooled.dtype == torch.bfloat16
        assert pooled.isfinite().all()
