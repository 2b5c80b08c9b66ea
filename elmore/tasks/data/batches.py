"""Which examples make a batch: a matter of the seed, the epoch and the number alone."""

from collections.abc import Sequence

import numpy as np

_POOL = 50  # batches that are sorted together: alike in length, and still different each epoch


def num_batches(num_examples: int, size: int) -> int:
    """Count the batches of an epoch."""
    return max(1, -(-num_examples // size))


def epoch(lengths: Sequence[int], size: int, *, seed: int, number: int) -> list[list[int]]:
    """Deal all examples out to the batches of an epoch.

    Each has about the same number of examples, so none is left with hardly any.
    """
    draws = np.random.default_rng([seed, number])
    order = draws.permutation(len(lengths))
    sizes = np.asarray(lengths)
    count = num_batches(len(lengths), size)
    pools = np.array_split(order, -(-count // _POOL))
    alike = [pool[sizes[pool].argsort(kind="stable")] for pool in pools]
    batches = np.array_split(np.concatenate(alike), count)
    return [batches[i].tolist() for i in draws.permutation(count)]
