"""Muon: orthogonal updates for the hidden matrices, AdamW for the rest (Jordan et al., 2024).

    momentum = beta * momentum + (1 - beta) * gradient
    weight  -= lr * (0.2 * sqrt(max(rows, columns)) * orthogonal(momentum) + weight_decay * weight)

`orthogonal` replaces the singular values of a matrix by values near 1, by five Newton-Schulz
iterations. With the factor 0.2 * sqrt(max(rows, columns)) an update has about the root mean square
of an AdamW update (Liu et al., 2025), so both kinds of weights share one learning rate.
"""

from collections import defaultdict
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn, optim

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic polynomial, Jordan et al.
_ITERATIONS = 5
_MOMENTUM = 0.95
_UPDATE_RMS = 0.2  # what AdamW's updates usually have


class Muon(optim.AdamW):
    """AdamW whose groups with `orthogonal=True` are matrices updated by Muon."""

    def __init__(
        self,
        matrices: Sequence[nn.Parameter],
        adamw_groups: Sequence[dict],
        *,
        lr: float,
        betas: tuple[float, float],
        weight_decay: float,
        fused: bool,
    ) -> None:
        hidden = {"params": list(matrices), "orthogonal": True, "weight_decay": weight_decay}
        adamw = [{"orthogonal": False, **group} for group in adamw_groups if group["params"]]
        super().__init__([hidden, *adamw], lr=lr, betas=betas, fused=fused)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyrefly: ignore
        """Update the matrices, then the rest: AdamW skips weights without a gradient."""
        for group in self.param_groups:
            if group["orthogonal"]:
                self._update_matrices(group)
        super().step(closure)

    def _update_matrices(self, group: dict) -> None:
        # matrices of one shape are multiplied together: fewer, larger kernels
        by_shape: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
        for weight in group["params"]:
            if weight.grad is not None:
                by_shape[weight.shape].append(weight)
        for shape, weights in by_shape.items():
            updates = orthogonalize(torch.stack([self._nesterov(weight) for weight in weights]))
            scale = _UPDATE_RMS * max(shape) ** 0.5
            for weight, update in zip(weights, updates, strict=True):
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(update, alpha=-group["lr"] * scale)
                weight.grad = None

    def _nesterov(self, weight: nn.Parameter) -> Tensor:
        """Return the gradient looked ahead along its momentum, which it updates."""
        gradient, state = weight.grad, self.state[weight]
        assert gradient is not None
        if not state:
            state["step"] = torch.zeros(())  # AdamW expects it in every state
            state["momentum"] = torch.zeros_like(weight)
        state["step"] += 1
        state["momentum"].lerp_(gradient, 1 - _MOMENTUM)
        return gradient.lerp(state["momentum"], _MOMENTUM)


def orthogonalize(matrices: Float[Tensor, "n rows columns"]) -> Float[Tensor, "n rows columns"]:
    """Bring all singular values of each matrix near 1; in bf16 on a GPU, where that is enough."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.bfloat16() if matrices.is_cuda else matrices
    x = x.mT if tall else x  # the smaller Gram matrix
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = _COEFFICIENTS
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x.mT if tall else x


def hidden_matrices(module: nn.Module) -> list[nn.Parameter]:
    """Return the trainable matrices between layers: neither lookup tables nor output words.

    A row of those is the vector of one word or character, which most batches do not touch; Muon
    would mix it with the others. `nn.Embedding` is known as such, other modules say
    `rows_are_lookups = True`.
    """
    tables = {
        id(weight)
        for part in module.modules()
        if isinstance(part, nn.Embedding) or getattr(part, "rows_are_lookups", False)
        for weight in part.parameters(recurse=False)
    }
    return [
        weight
        for weight in module.parameters()
        if weight.requires_grad and weight.dim() == 2 and id(weight) not in tables
    ]
