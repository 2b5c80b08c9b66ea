"""The gated carry (Srivastava et al., 2015), as ELMo has it.

    gate = sigmoid(W_g x + b_g)
    y    = gate * relu(W_t x + b_t) + (1 - gate) * x

Shapes: N words, F width.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Highway(nn.Module):
    """One layer that starts as almost the identity: the gate's bias is -2.

    Published files call the gate "carry" (bilm-tf) or store its negative (AllenNLP): here it opens
    the transform, as in the equation. The transform is a relu, whatever the convolutions use.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.transform = nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights: normal, as in the original training."""
        scale = self.gate.in_features**-0.5
        for linear, bias in ((self.transform, 0.0), (self.gate, -2.0)):
            nn.init.normal_(linear.weight, std=scale)
            nn.init.constant_(linear.bias, bias)

    def forward(self, x: Float[Tensor, "N F"]) -> Float[Tensor, "N F"]:
        """Let each element through changed, unchanged, or in between."""
        gate = torch.sigmoid(self.gate(x))
        return gate * torch.relu(self.transform(x)) + (1 - gate) * x
