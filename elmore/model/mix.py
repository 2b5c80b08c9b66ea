"""Mix the layers of a biLM into one vector per token (Peters et al., 2018, eq. 1).

    mixed[b, t] = gamma * sum_l softmax(weights)[l] * layers[l, b, t]

Shapes: L layers (the token layer is one of them), B sentences, T tokens, D width.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional

from elmore.model.padding import as_bool
from elmore.model.saved_mix import TOKEN_EPSILON, SavedMix

# Inside the root, as each release has it.
_EPSILON = {"token": TOKEN_EPSILON, "allennlp": 1e-13, "bilm-tf": 1e-12}


class ScalarMix(nn.Module):
    """A learned weighted sum of the layers, times a learned scale.

    It starts as the plain average of the layers, so an untrained mix is usable.

    Args:
        num_layers: L, the number of layers to mix.
        layer_norm: Normalise the layers first. "token" normalises each vector; "allennlp" and
            "bilm-tf" use one mean and variance per layer over all unmasked elements of the batch,
            as those releases do, so a vector then depends on its batch.
        last_only: Scale the top layer alone; there are no weights to learn.
        weights: Initial weights, before the softmax; zeros by default.
        gamma: Initial scale.
        trainable: Whether weights and scale are trained.

    Raises:
        ValueError: `layer_norm` is unknown, or `weights` is not one number per layer.
    """

    def __init__(
        self,
        num_layers: int,
        *,
        layer_norm: str | bool = False,
        last_only: bool = False,
        weights: Sequence[float] | None = None,
        gamma: float = 1.0,
        trainable: bool = True,
    ) -> None:
        super().__init__()
        if layer_norm is not False and layer_norm not in _EPSILON:
            kinds = ", ".join(map(repr, _EPSILON))
            raise ValueError(f"layer_norm must be False or one of {kinds}: {layer_norm!r}")
        num_weights = 0 if last_only else num_layers
        if weights is not None and len(weights) != num_weights:
            raise ValueError(f"this mix has {num_weights} weights and was given {len(weights)}")
        self.num_layers = num_layers
        self.layer_norm = layer_norm
        self.last_only = last_only
        start = torch.zeros(num_weights) if weights is None else weights
        self.weights = nn.Parameter(
            torch.as_tensor(start, dtype=torch.get_default_dtype()), requires_grad=trainable
        )
        self.gamma = nn.Parameter(torch.tensor(float(gamma)), requires_grad=trainable)

    def forward(
        self, layers: Float[Tensor, "L B T D"], mask: Shaped[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """Return the weighted sum of the layers.

        Args:
            layers: All layers of a batch, the token layer first.
            mask: True or 1 for a token; only "allennlp" and "bilm-tf" need it.

        Raises:
            ValueError: There are more or fewer layers than weights, or a mask is missing.
        """
        if len(layers) != self.num_layers:
            raise ValueError(
                f"this mix was built for {self.num_layers} layers and was given {len(layers)}"
            )
        if self.last_only:
            layers = layers[-1:]
        if self.layer_norm:
            layers = self._normalize(layers, mask)
        return self.gamma * torch.einsum("l,lbtd->btd", self.normalized_weights(), layers)

    def normalized_weights(self) -> Float[Tensor, " L"]:
        """Return softmax(weights): positive, summing to one."""
        return self.weights.softmax(dim=0) if len(self.weights) else self.gamma.new_ones(1)

    def saved(self) -> SavedMix:
        """Return the values of this mix, to save them.

        Raises:
            ValueError: `layer_norm` is "allennlp" or "bilm-tf", which depend on the batch.
        """
        if self.layer_norm in ("allennlp", "bilm-tf"):
            raise ValueError(f"a mix with layer_norm={self.layer_norm!r} depends on its batch")
        weights = self.weights.tolist()
        if self.last_only:
            weights = [-1e9] * (self.num_layers - 1) + [0.0]  # softmax: 0 for all but the top
        return SavedMix(tuple(weights), self.gamma.item(), self.layer_norm == "token")

    def penalty(self, strength: float) -> Float[Tensor, ""]:
        """Return strength * sum(w^2), to be added to the loss.

        Args:
            strength: The paper's lambda; a large one keeps the plain average of the layers.
        """
        return strength * self.weights.square().sum()

    def _normalize(
        self, layers: Float[Tensor, "L B T D"], mask: Shaped[Tensor, "B T"] | None
    ) -> Float[Tensor, "L B T D"]:
        if self.layer_norm == "token":
            return functional.layer_norm(layers, layers.shape[-1:], eps=TOKEN_EPSILON)
        if mask is None:
            raise ValueError(f"layer_norm={self.layer_norm!r} needs the mask of the batch")
        epsilon = _EPSILON[str(self.layer_norm)]
        mask = as_bool(mask)
        is_token = mask[None, :, :, None]
        count = mask.sum() * layers.shape[-1]
        batch = (1, 2, 3)  # all dimensions but that of the layers
        mean = (layers * is_token).sum(batch, keepdim=True) / count
        variance = ((layers - mean) * is_token).square().sum(batch, keepdim=True) / count
        return (layers - mean) / (variance + epsilon).sqrt()
