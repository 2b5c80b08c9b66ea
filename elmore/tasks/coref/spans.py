"""Which stretches of a text may be mentions, and which of them are mentions of one thing.

Shapes: T tokens of a document, W widths a stretch may have.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float


def candidates(lengths: Sequence[int], max_width: int) -> Bool[np.ndarray, "T W"]:
    """Say of each first token and each width, from 1, whether the stretch ends in its sentence."""
    room = [left for length in lengths for left in range(length, 0, -1)]
    return np.array(room, dtype=np.int64)[:, None] >= np.arange(1, max_width + 1)


def prune_spans(
    scores: Float[np.ndarray, "T W"], allowed: Bool[np.ndarray, "T W"], number: int
) -> list[tuple[int, int]]:
    """Keep the best stretches, as first and last token, in the order of the text.

    From the best on, each that crosses none that is kept already is kept, up to a number; of two
    that cross (overlap, with neither inside the other), the better one stays. Equal scores go to
    the earlier and the shorter.
    """
    num_tokens, max_width = scores.shape
    first = np.flatnonzero(allowed)
    order = first[np.argsort(-scores.ravel()[first], kind="stable")]
    furthest = list(range(num_tokens))  # the last token of the widest kept that starts here
    nearest = list(range(num_tokens))  # the first token of the widest kept that ends here
    kept = []
    for place in order.tolist():
        if len(kept) == number:
            break
        start, width = divmod(place, max_width)
        end = start + width
        if width and (max(furthest[start + 1 : end + 1]) > end or min(nearest[start:end]) < start):
            continue
        furthest[start] = max(furthest[start], end)
        nearest[end] = min(nearest[end], start)
        kept.append((start, end))
    return sorted(kept)


def clusters_from_antecedents(antecedents: Sequence[int]) -> list[list[int]]:
    """Follow each one's antecedent, -1 for none, to clusters of two and more."""
    cluster: dict[int, list[int]] = {}
    for number, antecedent in enumerate(antecedents):
        if antecedent < 0:
            continue
        members = cluster.setdefault(antecedent, [antecedent])
        members.append(number)
        cluster[number] = members
    return list({id(members): members for members in cluster.values()}.values())
