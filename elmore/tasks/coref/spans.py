"""Candidate spans, pruning, and clusters from antecedents.

Shapes: T tokens of a document, W widths of spans.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float


def candidate_spans(lengths: Sequence[int], max_width: int) -> Bool[np.ndarray, "T W"]:
    """Return for each first token and width, from 1, whether the span ends in its sentence."""
    num_left = [left for length in lengths for left in range(length, 0, -1)]
    return np.array(num_left, dtype=np.int64)[:, None] >= np.arange(1, max_width + 1)


def prune_spans(
    scores: Float[np.ndarray, "T W"], allowed: Bool[np.ndarray, "T W"], number: int
) -> list[tuple[int, int]]:
    """Return the best spans, as first and last token, in the order of the text.

    Spans are taken from the best score on, up to a number; one that crosses (overlaps without
    nesting) a span that was taken is dropped. Ties go to the earlier and the shorter span.
    """
    num_tokens, max_width = scores.shape
    first = np.flatnonzero(allowed)
    order = first[np.argsort(-scores.ravel()[first], kind="stable")]
    furthest = list(range(num_tokens))  # last token of the widest kept span that starts here
    nearest = list(range(num_tokens))  # first token of the widest kept span that ends here
    selected = []
    for index in order.tolist():
        if len(selected) == number:
            break
        start, width = divmod(index, max_width)
        end = start + width
        if width and (max(furthest[start + 1 : end + 1]) > end or min(nearest[start:end]) < start):
            continue
        furthest[start] = max(furthest[start], end)
        nearest[end] = min(nearest[end], start)
        selected.append((start, end))
    return sorted(selected)


def clusters_from_antecedents(antecedents: Sequence[int]) -> list[list[int]]:
    """Return clusters of two or more spans, from the antecedent of each, or -1."""
    cluster: dict[int, list[int]] = {}
    for number, antecedent in enumerate(antecedents):
        if antecedent < 0:
            continue
        members = cluster.setdefault(antecedent, [antecedent])
        members.append(number)
        cluster[number] = members
    return list({id(members): members for members in cluster.values()}.values())
