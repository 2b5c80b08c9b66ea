"""Choose between a sample of a sweep and all of it, which `make test-full` (ELMORE_FULL=1) runs.

Used by conftest, for Hypothesis, and by every test whose sizes or grid would take long: the sample
keeps each kind of case, the full sweep more of each kind.
"""

import os
from typing import TypeVar

T = TypeVar("T")

FULL = os.environ.get("ELMORE_FULL", "") not in ("", "0")


def pick(sample: T, full: T) -> T:
    """Return `sample`, or `full` in a full run."""
    return full if FULL else sample
