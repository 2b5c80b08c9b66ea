"""Start an adaptive softmax from a full one over the same words, or a full one from an adaptive.

Both directions are approximations to go on training from. An adaptive softmax takes the frequent
words as they are. A tail keeps the directions in which the rows of its words differ most (principal
components), and its entry in the head has their mean row, the logit of which is only about that of
all of them. A full softmax adds up what the head says of a tail and the tail of a word; how likely
the tail is as a whole depends on the state, which it leaves out.

Shapes: D width, n words of a tail, W width of a tail.
"""

from collections.abc import Iterator
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor

from elmore.model import sampling
from elmore.model.softmax import AdaptiveSoftmax, Softmax, Tail


@torch.no_grad()
def copy_full_softmax(adaptive: AdaptiveSoftmax, full: Softmax) -> None:
    """Overwrite the weights of an adaptive softmax by what it can have of a full one."""
    weight, bias = full.weight.detach().cpu(), full.bias.detach().cpu()
    ranks = torch.arange(full.num_words)
    shares = sampling.log_uniform(ranks, full.num_words).to(weight.dtype)
    frequent = slice(adaptive.num_frequent)
    adaptive.head.weight[frequent], adaptive.head.bias[frequent] = weight[frequent], bias[frequent]
    for entry, words, tail in _tails(adaptive):
        rows, mean, directions = _principal_rows(
            weight[words], shares[words], len(tail.projection.weight)
        )
        tail.projection.weight.copy_(directions)
        tail.softmax.weight.copy_(rows)
        tail.softmax.bias.copy_(bias[words])
        adaptive.head.weight[entry] = mean
        adaptive.head.bias[entry] = bias[words].logsumexp(dim=0)


@torch.no_grad()
def copy_adaptive_softmax(full: Softmax, adaptive: AdaptiveSoftmax) -> None:
    """Overwrite the weights of a full softmax by what it can have of an adaptive one."""
    head = adaptive.head
    frequent = slice(adaptive.num_frequent)
    full.weight[frequent], full.bias[frequent] = head.weight[frequent], head.bias[frequent]
    for entry, words, tail in _tails(adaptive):
        rows, bias = tail.softmax.weight, tail.softmax.bias
        full.weight[words] = head.weight[entry] + rows @ tail.projection.weight
        full.bias[words] = head.bias[entry] + bias - bias.logsumexp(dim=0)


def _tails(adaptive: AdaptiveSoftmax) -> Iterator[tuple[int, slice, Tail]]:
    """Yield the entry of each tail in the head, its words, and the tail."""
    ends = pairwise((*adaptive.cutoffs, adaptive.num_words))
    for number, ((begin, end), tail) in enumerate(zip(ends, adaptive.tails, strict=True)):
        assert isinstance(tail, Tail)
        yield adaptive.num_frequent + number, slice(begin, end), tail


def _principal_rows(
    rows: Float[Tensor, "n D"], shares: Float[Tensor, " n"], width: int
) -> tuple[Float[Tensor, "n W"], Float[Tensor, " D"], Float[Tensor, "W D"]]:
    """Return rows relative to their mean in their main directions, that mean, and the directions.

    Frequent words count more, by their shares. The directions are rotated at random, so that all
    columns vary alike: the numbers of a row have one scale when they are rounded.
    """
    shares = shares / shares.sum()
    mean = shares @ rows
    centred = rows - mean
    covariance = centred.T @ (shares[:, None] * centred)
    directions = torch.linalg.eigh(covariance.double()).eigenvectors[:, -width:].T
    generator = torch.Generator().manual_seed(0)
    square = torch.randn(len(directions), len(directions), generator=generator, dtype=torch.double)
    directions = (torch.linalg.qr(square).Q @ directions).to(rows.dtype)
    return centred @ directions.T, mean, directions
