"""Find the distinct words in a tensor of character ids, so that each is encoded once.

For callers that have tensors and no strings.

Shapes: B sentences, T tokens, C ids per word, N distinct words.
"""

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from elmore.model.padding import as_bool


def index_unique_words(
    ids: Int[Tensor, "B T C"], mask: Shaped[Tensor, "B T"], marks: Int[Tensor, "2 C"]
) -> tuple[Int[Tensor, "B T+2"], Int[Tensor, "N C"]]:
    """Return an index of the distinct words, with boundary words added, and their ids."""
    mask = as_bool(mask)
    spelled = torch.cat([marks, ids[mask]])  # (2 + tokens, C)
    words, number = torch.unique(spelled, dim=0, return_inverse=True)
    index = number.new_full((len(ids), ids.shape[1] + 2), -1)
    index[:, 0] = number[0]
    index[:, 1:-1][mask] = number[2:]
    index.scatter_(1, mask.sum(dim=1, keepdim=True) + 1, number[1].expand(len(ids), 1))
    return index, words
