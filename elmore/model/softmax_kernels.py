"""The element-wise parts of `log_sum.py` over a tile of products; on a GPU each is one kernel.

    logits = product + offsets, -inf where the word is the target
    log_sum = log sum_k exp(logits[:, k])
    probs = exp(logits - total)

In plain torch each of these makes many passes over the tile, and on a GPU the passes are most of
the cost. One program sums a whole row, so results are reproducible.

Shapes: m positions, k words.
"""

# ruff: noqa: ANN001, ANN201, ANN202, D103 -- a kernel takes pointers, which have no Python type

from __future__ import annotations

import math
from typing import no_type_check

import torch
from jaxtyping import Float, Int
from torch import Tensor

try:
    import triton
    from triton import jit
    from triton import language as tl
except ModuleNotFoundError:  # it comes with torch for GPUs; without it plain torch is used
    triton = None

    def jit(kernel):
        return kernel


BLOCK = 2048


def log_sum(
    product: Float[Tensor, "m k"],
    offsets: Float[Tensor, " k"],
    words: Int[Tensor, " k"],
    targets: Int[Tensor, " m"],
) -> Float[Tensor, " m"]:
    """Return the log-sum-exp of each position over one tile; the product is overwritten."""
    if not triton or not product.is_cuda:
        return _logits(product, offsets, words, targets).logsumexp(dim=1)
    result = torch.empty_like(product[:, 0])
    _log_sum[(len(product),)](
        product, offsets, words, targets, result, product.shape[1], block=BLOCK, num_warps=8
    )
    return result


def probabilities(
    product: Float[Tensor, "m k"],
    offsets: Float[Tensor, " k"],
    words: Int[Tensor, " k"],
    targets: Int[Tensor, " m"],
    total: Float[Tensor, " m"],
    dtype: torch.dtype,
) -> Float[Tensor, "m k"]:
    """Return exp(logits - total), the softmax probabilities; the product is overwritten."""
    if not triton or not product.is_cuda:
        return _logits(product, offsets, words, targets).sub_(total[:, None]).exp_().to(dtype)
    rows, width = product.shape
    result = torch.empty_like(product, dtype=dtype)
    _probabilities[rows, triton.cdiv(width, BLOCK)](
        product, offsets, words, targets, total, result, width, block=BLOCK, num_warps=8
    )
    return result


def _logits(
    product: Float[Tensor, "m k"],
    offsets: Float[Tensor, " k"],
    words: Int[Tensor, " k"],
    targets: Int[Tensor, " m"],
) -> Float[Tensor, "m k"]:
    return product.add_(offsets).masked_fill_(words == targets[:, None], -math.inf)


@jit
@no_type_check
def _log_sum(product, offsets, words, targets, result, width, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(targets + row)
    # each lane keeps its own largest logit and its sum over exp(logit - largest)
    largest = tl.full((block,), -float("inf"), product.dtype.element_ty)
    total = tl.zeros((block,), product.dtype.element_ty)
    for begin in range(0, width, block):
        logits = _tile(product + row * width, offsets, words, target, begin, width, block)
        higher = tl.maximum(largest, logits)
        finite = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(largest - finite) + tl.exp(logits - finite)
        largest = higher
    highest = tl.max(largest, 0)
    highest = tl.where(highest == -float("inf"), 0.0, highest)
    tl.store(result + row, tl.log(tl.sum(total * tl.exp(largest - highest), 0)) + highest)


@jit
@no_type_check
def _probabilities(product, offsets, words, targets, totals, result, width, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    begin = tl.program_id(1) * block
    target = tl.load(targets + row)
    logits = _tile(product + row * width, offsets, words, target, begin, width, block)
    columns = begin + tl.arange(0, block)
    probs = tl.exp(logits - tl.load(totals + row))
    tl.store(result + row * width + columns, probs, columns < width)


@jit
@no_type_check
def _tile(product, offsets, words, target, begin, width, block: tl.constexpr):
    columns = begin + tl.arange(0, block)
    inside = columns < width
    logits = tl.load(product + columns, inside, 0.0) + tl.load(offsets + columns, inside, 0.0)
    hit = tl.load(words + columns, inside, 0) == target
    return tl.where(inside & (hit == 0), logits, -float("inf"))
