"""Sentences into batches that fit: alike in length, bounded in tokens, order remembered."""

from collections.abc import Iterator, Sequence


def batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Give the numbers of the sentences of each batch, longest first.

    A batch never costs more than `budget` padded tokens, unless one sentence alone does.
    """
    order = sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True)
    start = 0
    while start < len(order):
        size = max(1, budget // max(1, lengths[order[start]]))
        yield order[start : start + size]
        start += size
