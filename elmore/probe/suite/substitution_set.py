"""Sets for lexical substitution: words in context, and candidates that may replace them.

Shapes: C candidates of a target.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from elmore.probe.suite.embeddings import Tokens


class Target(NamedTuple):
    """A word in its sentence, and its candidates with their gold weights."""

    sentence: Tokens
    position: int
    candidates: list[Tokens]
    weights: Float[np.ndarray, " C"]


@dataclass(frozen=True)
class SubstitutionSet:
    """Targets to choose the method by, and targets to score."""

    dev: list[Target]
    test: list[Target]
    accepted: float
    """The weight from which a candidate is a correct answer."""
    levels: dict[str, float] = field(default_factory=dict)
    """Names of levels with the weight from which a candidate belongs to them, for F at 10."""
