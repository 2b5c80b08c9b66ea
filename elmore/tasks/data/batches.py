"""Divide examples into batches: a pure function of the seed and the epoch."""

from collections.abc import Sequence

import numpy as np

_POOL = (
    50  # batches that are sorted by length together: similar lengths, yet other batches each epoch
)


def num_batches(num_examples: int, batch_size: int) -> int:
    """Return the number of batches of an epoch."""
    return max(1, -(-num_examples // batch_size))


def epoch_batches(
    lengths: Sequence[int], batch_size: int, *, seed: int, epoch: int
) -> list[list[int]]:
    """Return the batches of an epoch, as indices of examples.

    Batches differ in size by one at most, so none is left with hardly any examples.
    """
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(lengths))
    sizes = np.asarray(lengths)
    count = num_batches(len(lengths), batch_size)
    pools = np.array_split(order, -(-count // _POOL))
    by_length = [pool[sizes[pool].argsort(kind="stable")] for pool in pools]
    batches = np.array_split(np.concatenate(by_length), count)
    return [batches[i].tolist() for i in rng.permutation(count)]
