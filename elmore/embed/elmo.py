"""Elmo: the layers of a biLM, mixed inside a task model and trained with it.

Shapes: B sentences, T tokens, D width of one direction.
"""

import copy
from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from elmore.embed.embedder import Embedder
from elmore.errors import ConfigError
from elmore.model.layer_stack import LayerStack
from elmore.model.mix import SavedMix, ScalarMix


class Mixed(NamedTuple):
    """Vectors for a task: one tensor per mix, zero where the mask is false."""

    mixes: list[Float[Tensor, "B T 2*D"]]
    mask: Bool[Tensor, "B T"]


class Elmo(nn.Module):
    """Several learned mixes over one run of the biLM.

    With `freeze` the network is the embedder's own, stays as it is, and has no dropout even in
    training. Without, a copy of it is fine-tuned with the task: `mixer.embedder` embeds with that
    copy, which shares no memory with the embedder given. Loading a state dict into a frozen module
    changes its embedder, but not the bundle that embedder was built on. `weights` fixes the
    mixes instead of learning them; the rest is told by `ScalarMix`.
    """

    def __init__(
        self,
        embedder: Embedder,
        num_mixes: int = 1,
        *,
        dropout: float = 0.5,
        layer_norm: str | bool = False,
        last_only: bool = False,
        weights: Sequence[float] | None = None,
        freeze: bool = True,
        keep_boundaries: bool = False,
    ) -> None:
        super().__init__()
        if num_mixes < 1:
            raise ConfigError(f"num_mixes must be at least 1, found {num_mixes}")
        if embedder.precision != "exact" and not freeze:
            raise ConfigError(
                "a fast embedder cannot learn; load it with precision='exact', or pass freeze=True"
            )
        self.embedder = embedder if freeze else copy.deepcopy(embedder)
        self.bilm = self.embedder.bundle.model
        if not freeze:
            self.bilm.requires_grad_(True)
        self.freeze = freeze
        self.keep_boundaries = keep_boundaries
        self.dropout = nn.Dropout(dropout)
        self.mixes = nn.ModuleList(
            ScalarMix(
                embedder.num_layers,
                layer_norm=layer_norm,
                last_only=last_only,
                weights=weights,
                trainable=weights is None,
            )
            for _ in range(num_mixes)
        ).to(embedder.device)
        self.train(self.training)

    def forward(self, sentences: Sequence[Sequence[str]]) -> Mixed:
        """Mix the layers of a batch of tokenised sentences."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.freeze):
            stack = self.embedder.run(sentences, training=self.bilm.training and not self.freeze)
        inner = stack if self.keep_boundaries else stack.without_boundaries()
        mixed = [self._mix(mix, stack, inner) for mix in self.mixes]
        return Mixed([self.dropout(mix * inner.mask[:, :, None]) for mix in mixed], inner.mask)

    def _mix(self, mix: nn.Module, stack: LayerStack, inner: LayerStack) -> Tensor:
        assert isinstance(mix, ScalarMix)
        if mix.layer_norm != "allennlp" or self.keep_boundaries:
            return mix(*inner)
        return mix(*stack)[:, 1:-1]  # its statistics count the boundaries

    def train(self, mode: bool = True) -> Self:
        """Switch dropout on or off; a frozen biLM has none either way."""
        super().train(mode)
        if self.freeze:
            self.bilm.eval()
        return self

    def penalty(self, strength: float) -> Float[Tensor, ""]:
        """Give the paper's lambda * sum(w^2) over the weights of all mixes."""
        mixes = [mix for mix in self.mixes if isinstance(mix, ScalarMix)]
        return torch.stack([mix.penalty(strength) for mix in mixes]).sum()

    def saved(self) -> list[SavedMix]:
        """Give the numbers of each mix: what `embed(layers=...)` and a model folder take."""
        return [mix.saved() for mix in self.mixes if isinstance(mix, ScalarMix)]

    def layer_weights(self) -> list[dict[str, float | list[float]]]:
        """Return the current softmax-normalised layer weights and gamma of each mix."""
        mixes = [mix for mix in self.mixes if isinstance(mix, ScalarMix)]
        return [
            {"weights": mix.normalized_weights().tolist(), "gamma": mix.gamma.item()}
            for mix in mixes
        ]
