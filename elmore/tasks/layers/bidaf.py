"""Attention between a passage and a question, and of a passage to itself.

    S[i, j] = u . h[i] + v . q[j] + (w * h[i]) . q[j]

(Seo et al., 2017, as Clark and Gardner, 2018, have it.)

Shapes: B pairs, T tokens of the passage, J of the question, D width, O output width.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from elmore.tasks.layers.attention import lowered, masked_softmax


class Trilinear(nn.Module):
    """How well each token of one text goes with each of another."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.left = nn.Linear(width, 1, bias=False)
        self.right = nn.Linear(width, 1, bias=False)
        self.both = nn.Parameter(torch.empty(width).uniform_(-(width**-0.5), width**-0.5))

    def forward(
        self, left: Float[Tensor, "B T D"], right: Float[Tensor, "B J D"]
    ) -> Float[Tensor, "B T J"]:
        """Give the scores S."""
        product = (left * self.both) @ right.transpose(1, 2)
        return product + self.left(left) + self.right(right).transpose(1, 2)


class BiAttention(nn.Module):
    """Each token of the passage with what the question says of it: [h; c; h * c; k * c].

    c[i] is the question as token i attends to it; k, one for all tokens, is the passage as the
    question attends to it, through the token of the question that suits each best.
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
        """Attend both ways."""
        scores = self.scores(passage, question)
        asked = question_mask[:, None, :].expand_as(scores)
        attended = masked_softmax(scores, asked).to(question.dtype) @ question  # (B, T, D)
        best = lowered(scores, asked).amax(dim=2)
        shares = masked_softmax(best, passage_mask).to(passage.dtype)
        whole = shares[:, None, :] @ passage  # (B, 1, D)
        return torch.cat([passage, attended, passage * attended, whole * attended], dim=-1)


class SelfAttention(nn.Module):
    """Each token of a passage with what the others say of it: [h; c; h * c]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.output_dim = 3 * width
        self.scores = Trilinear(width)

    def forward(
        self, passage: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]
    ) -> Float[Tensor, "B T O"]:
        """Attend to all tokens but oneself."""
        scores = self.scores(passage, passage)
        itself = torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)
        others = (mask[:, None, :] & ~itself).expand_as(scores)
        attended = masked_softmax(scores, others).to(passage.dtype) @ passage
        return torch.cat([passage, attended, passage * attended], dim=-1)
