"""The highway layer (Srivastava et al., 2015) of the ELMo character encoder.

    gate = sigmoid(W_g x + b_g)
    y    = gate * relu(W_t x + b_t) + (1 - gate) * x

Shapes: N words, F width.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from elmore.model.linear import Linear
from elmore.model.native_bilm import NativeHighway
from elmore.model.packed_weights import runs_natively


class Highway(nn.Module):
    """One highway layer, initialised near the identity: the bias of the gate is -2.

    Published files call the gate "carry" (bilm-tf) or store its negative (AllenNLP); here it
    weights the transform, as in the equation. The transform is a relu, whatever the activation of
    the convolutions is.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.transform = Linear(dim, dim)
        self.gate = Linear(dim, dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the weights: normal, as in the original training."""
        scale = self.gate.in_features**-0.5
        for linear, bias in ((self.transform, 0.0), (self.gate, -2.0)):
            nn.init.normal_(linear.weight, std=scale)
            nn.init.constant_(linear.bias, bias)

    def forward(self, x: Float[Tensor, "N F"]) -> Float[Tensor, "N F"]:
        """Return the gated sum of the transformed and the unchanged input."""
        if runs_natively(x, *self.parameters()):
            return torch.from_numpy(self.pack()(x.detach().numpy()))
        gate = torch.sigmoid(self.gate(x))
        return gate * torch.relu(self.transform(x)) + (1 - gate) * x

    def pack(self) -> NativeHighway:
        """Return the layer for the native library."""
        return NativeHighway(self.gate.pack(), self.transform.pack())
