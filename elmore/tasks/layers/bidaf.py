"""Attention between a passage and a question, and of a passage to itself.

    S[i, j] = u . h[i] + v . q[j] + (w * h[i]) . q[j]

(Seo et al., 2017, with the changes of Clark and Gardner, 2018.)

Shapes: B pairs, T tokens of the passage, J of the question, D width, O output width.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from elmore.tasks.layers.attention import mask_scores, masked_softmax


class Trilinear(nn.Module):
    """Trilinear similarity of each token of one text with each token of another."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.left = nn.Linear(width, 1, bias=False)
        self.right = nn.Linear(width, 1, bias=False)
        self.both = nn.Parameter(torch.empty(width).uniform_(-(width**-0.5), width**-0.5))

    def forward(
        self, left: Float[Tensor, "B T D"], right: Float[Tensor, "B J D"]
    ) -> Float[Tensor, "B T J"]:
        """Return the similarities S."""
        product = (left * self.both) @ right.transpose(1, 2)
        return product + self.left(left) + self.right(right).transpose(1, 2)


class BiAttention(nn.Module):
    """Attention between passage and question in both directions: [h; c; h * c; k * c].

    c[i] is the question as token i of the passage attends to it. k, the same for all tokens, is the
    passage as the question attends to it: the weight of token i is its highest similarity with any
    token of the question.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.output_dim = 4 * width
        self.scores = Trilinear(width)

    def forward(
        self,
        passage: Float[Tensor, "B T D"],
        question: Float[Tensor, "B J D"],
        passage_mask: Bool[Tensor, "B T"],
        question_mask: Bool[Tensor, "B J"],
    ) -> Float[Tensor, "B T O"]:
        """Return the passage with both attentions."""
        scores = self.scores(passage, question)
        mask = question_mask[:, None, :].expand_as(scores)
        attended = masked_softmax(scores, mask).to(question.dtype) @ question  # (B, T, D)
        best = mask_scores(scores, mask).amax(dim=2)
        weights = masked_softmax(best, passage_mask).to(passage.dtype)
        summary = weights[:, None, :] @ passage  # (B, 1, D)
        return torch.cat([passage, attended, passage * attended, summary * attended], dim=-1)


class SelfAttention(nn.Module):
    """Attention of a passage to itself: [h; c; h * c]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.output_dim = 3 * width
        self.scores = Trilinear(width)

    def forward(
        self, passage: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T O"]:
        """Let each token attend to all others."""
        scores = self.scores(passage, passage)
        itself = torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)
        other_tokens = (mask[:, None, :] & ~itself).expand_as(scores)
        attended = masked_softmax(scores, other_tokens).to(passage.dtype) @ passage
        return torch.cat([passage, attended, passage * attended], dim=-1)
