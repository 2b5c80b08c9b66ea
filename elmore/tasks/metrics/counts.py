"""Scores of summed counts, for many sums at once.

A score such as F1 is no mean over examples, but it is a function of counts that are. With the
counts of each example, any resample of the examples can be scored without predicting again.

Shapes: R sums of C counts.
"""

import numpy as np
from jaxtyping import Float


def ratio(counts: Float[np.ndarray, "R C"]) -> Float[np.ndarray, " R"]:
    """Return correct / total in percent; 0 if there is nothing."""
    return _percent(counts[:, 0], counts[:, 1])


def f1(counts: Float[np.ndarray, "R C"]) -> Float[np.ndarray, " R"]:
    """Return the F1 of correct, predicted and gold items in percent; 0 if there is nothing."""
    return _percent(2 * counts[:, 0], counts[:, 1] + counts[:, 2])


def _percent(
    part: Float[np.ndarray, " R"], total: Float[np.ndarray, " R"]
) -> Float[np.ndarray, " R"]:
    return 100 * np.divide(part, total, out=np.zeros_like(part), where=total > 0)
