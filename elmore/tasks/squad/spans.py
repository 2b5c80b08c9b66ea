"""Windows over long passages, and the best span of scores.

Shapes: B passages, T tokens, S tokens a span may have.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

Span = tuple[int, int]
"""First token and last."""


class Best(NamedTuple):
    """The best span of each passage."""

    first: Int[Tensor, " B"]
    last: Int[Tensor, " B"]
    score: Float[Tensor, " B"]


def best_spans(
    starts: Float[Tensor, "B T"],
    ends: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    max_span: int,
) -> Best:
    """Return the span with the highest sum of start and end score, of at most `max_span` tokens.

    Every passage must have a token.
    """
    # At least float32: in a coarser type, many sums would be equal.
    dtype = torch.promote_types(starts.dtype, torch.float32)
    # No span ends in the padding, so none starts there.
    absent = float("-inf")
    ends = ends.to(dtype).masked_fill(~mask, absent)
    ends = functional.pad(ends, (0, max_span - 1), value=absent)
    sums = starts.to(dtype)[:, :, None] + ends.unfold(1, max_span, 1)  # (B, T, S)
    score, index = sums.flatten(1).max(dim=1)
    first = index // max_span
    return Best(first, first + index % max_span, score)


def window_starts(length: int, window: int) -> list[int]:
    """Return the starts of windows that overlap by half and cover a passage.

    So each span of up to half a window lies completely in one of them.
    """
    stride = window // 2
    return [0, *range(stride, length - window + stride, stride)]


def window_with_answer(answers: Sequence[Span], length: int, window: int) -> tuple[int, list[Span]]:
    """Return the start of the first window with an answer, and the answers relative to it.

    If no window contains an answer, because it is longer than half a window, the window starts with
    the answer, and the answer is cut to its length.
    """
    for start in window_starts(length, window):
        inside = [(a - start, b - start) for a, b in answers if start <= a and b < start + window]
        if inside:
            return start, sorted(set(inside))
    first, last = answers[0]
    return first, [(0, min(last - first, window - 1))]
