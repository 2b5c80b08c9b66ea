"""Draw made-up vectors for sentences of given lengths.

Used by the tests of the classifiers: tasks/snli and tasks/sst.
"""

import torch

from elmore.tasks.embedding.network import PaddedTokens, Widths

WIDTHS = Widths(6, 4)


def embedded(lengths: list[int], widths: Widths = WIDTHS, padding: int = 0) -> PaddedTokens:
    """Draw vectors, the same for a sentence whatever stands beside it, and zeros behind its end."""
    longest = max(lengths, default=0) + padding
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    parts = []
    for width in widths:
        x = torch.zeros(len(lengths), longest, width)
        for row, length in enumerate(lengths):
            drawn = torch.Generator().manual_seed(row)
            x[row, :length] = torch.randn(length, width, generator=drawn)
        parts.append(x)
    return PaddedTokens(parts[0], mask, parts[1])


def rows(some: PaddedTokens, first: int, after: int) -> PaddedTokens:
    """Give some of the sentences alone, without the padding they do not need."""
    longest = int(some.mask[first:after].sum(dim=1).max())
    return PaddedTokens(*(part[first:after, :longest] for part in some))
