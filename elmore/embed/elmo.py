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
from elmore.model.mix import ScalarMix
from elmore.model.saved_mix import SavedMix


class Mixed(NamedTuple):
    """Vectors for a task: one tensor per mix, zero where the mask is false."""

    mixes: list[Float[Tensor, "B T 2*D"]]
    mask: Bool[Tensor, "B T"]


class Elmo(nn.Module):
    """One or more learned mixes of the layers of a biLM, as a module of a task model.

    With `freeze` the network is the embedder's own, is not trained, and has no dropout. Without it,
    a copy is fine-tuned with the task: `mixer.embedder` embeds with that copy, which shares no
    memory with the embedder given. Loading a state dict into a frozen module changes its embedder,
    but not the bundle that the embedder was built on.

    Args:
        embedder: The model.
        num_mixes: Number of mixes, each with weights of its own.
        dropout: Dropout on the mixed vectors.
        layer_norm: Normalisation of the layers, see `ScalarMix`.
        last_only: Use the top layer alone, scaled by gamma; there are no layer weights to learn.
        weights: Fixed weights of the layers, instead of learned ones.
        freeze: Whether the biLM stays as it is.
        keep_boundaries: Whether the vectors of the boundary tokens are returned too.

    Raises:
        ConfigError: `num_mixes` is not positive, or a fast embedder is to be fine-tuned.
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
        """Return the mixed vectors of a batch.

        Args:
            sentences: Tokens of each sentence; boundary tokens are added.

        Returns:
            One tensor (B, T, 2D) per mix, and the mask (B, T) of the tokens.
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.freeze):
            stack = self.embedder.run(sentences, training=self.bilm.training and not self.freeze)
        inner = stack if self.keep_boundaries else stack.without_boundaries()
        mixed = [self._mix(mix, stack, inner) for mix in self.mixes]
        return Mixed([self.dropout(mix * inner.mask[:, :, None]) for mix in mixed], inner.mask)

    def _mix(self, mix: nn.Module, stack: LayerStack, inner: LayerStack) -> Tensor:
        assert isinstance(mix, ScalarMix)
        if mix.layer_norm != "allennlp" or self.keep_boundaries:
            return mix(*inner)
        return mix(*stack)[:, 1:-1]  # its statistics include the boundary tokens

    def train(self, mode: bool = True) -> Self:
        """Set training mode; a frozen biLM has no dropout in either mode.

        Args:
            mode: Whether dropout is applied.

        Returns:
            The module itself.
        """
        super().train(mode)
        if self.freeze:
            self.bilm.eval()
        return self

    def penalty(self, strength: float) -> Float[Tensor, ""]:
        """Return strength * sum(w^2) over the weights of all mixes, to be added to the loss.

        Args:
            strength: The paper's lambda.
        """
        mixes = [mix for mix in self.mixes if isinstance(mix, ScalarMix)]
        return torch.stack([mix.penalty(strength) for mix in mixes]).sum()

    def saved(self) -> list[SavedMix]:
        """Return the parameters of each mix, for `embed(layers=...)` and for a model folder.

        Raises:
            ValueError: `layer_norm` is "allennlp" or "bilm-tf", which depend on the batch.
        """
        return [mix.saved() for mix in self.mixes if isinstance(mix, ScalarMix)]

    def layer_weights(self) -> list[dict[str, float | list[float]]]:
        """Return the current softmax-normalised layer weights and gamma of each mix."""
        mixes = [mix for mix in self.mixes if isinstance(mix, ScalarMix)]
        return [
            {"weights": mix.normalized_weights().tolist(), "gamma": mix.gamma.item()}
            for mix in mixes
        ]
