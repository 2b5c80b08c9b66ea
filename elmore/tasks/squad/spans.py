"""Which tokens of a passage: windows over a long one, and the best span of scores.

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
    """Maximise the sum of a start's and an end's score, the end at most `max_span - 1` later.

    Every passage has a token.
    """
    # In float32 at least: a coarse sum would make many spans equal.
    dtype = torch.promote_types(starts.dtype, torch.float32)
    # Behind the end no span ends, and so none starts.
    absent = float("-inf")
    ends = ends.to(dtype).masked_fill(~mask, absent)
    ends = functional.pad(ends, (0, max_span - 1), value=absent)
    sums = starts.to(dtype)[:, :, None] + ends.unfold(1, max_span, 1)  # (B, T, S)
    score, place = sums.flatten(1).max(dim=1)
    first = place // max_span
    return Best(first, first + place % max_span, score)


def windows(length: int, window: int) -> list[int]:
    """Say where windows over a passage start: the next half a window later, until all is seen.

    So each span of up to half a window is whole in one of them.
    """
    stride = window // 2
    return [0, *range(stride, length - window + stride, stride)]


def window_of(answers: Sequence[Span], length: int, window: int) -> tuple[int, list[Span]]:
    """Return the first window that holds an answer, and the answers as they stand in it.

    An answer that none holds, since it is longer than half of one, opens a window of its own; of
    one that is longer still, the front is kept.
    """
    for start in windows(length, window):
        inside = [(a - start, b - start) for a, b in answers if start <= a and b < start + window]
        if inside:
            return start, sorted(set(inside))
    first, last = answers[0]
    return first, [(0, min(last - first, window - 1))]
