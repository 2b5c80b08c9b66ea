"""A loaded model: network, alphabet, vocabulary, softmax and card."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from elmore.errors import ConfigError
from elmore.extras import require_torch
from elmore.model.bilm_arrays import BiLMArrays
from elmore.model.config import BiLMConfig
from elmore.model.layer_stack import LayerStack
from elmore.model.saved_mix import SavedMix
from elmore.model.state import BiLMState
from elmore.text.characters import Alphabet, encode_batch
from elmore.text.vocabulary import Vocabulary
from elmore.weights.pooling import TextPooling
from elmore.weights.whitening import Whitening


@dataclass(frozen=True, kw_only=True)
class Card:
    """Facts about a model for its users; empty if unknown."""

    name: str = ""
    language: str = ""
    licence: str = ""
    data: str = ""
    source: str = ""
    """The original format and files."""
    training: dict | None = None
    """Provenance: recipe, corpus, scores, versions."""

    def __post_init__(self) -> None:
        scores = (self.training or {}).get("scores", {})
        values = scores.values() if isinstance(scores, dict) else [None]
        if not all(_is_score(value) for value in values):
            raise ConfigError("training.scores must map names to numbers")


def _is_score(value: object) -> bool:
    is_int = type(value) is int and abs(value) <= sys.float_info.max
    return is_int or type(value) is float


@dataclass(frozen=True)
class Bundle:
    """One loaded model; without torch its network and its softmax are arrays."""

    model: Any
    """A `BiLM`, or without torch `BiLMArrays`."""
    alphabet: Alphabet
    vocabulary: Vocabulary | None = None
    card: Card = field(default_factory=Card)
    options: dict[str, Any] | None = None
    """The original options.json, for exporting it unchanged."""
    warm_state: BiLMState | None = None
    mixes: tuple[SavedMix, ...] = ()
    """Layer mixes that were trained for a task."""
    softmax: Any = None
    """A `Softmax` or `AdaptiveSoftmax` over the words of the vocabulary, or without torch
    `SoftmaxArrays`; None for published weights, which have none."""
    byte_counts: tuple[int, ...] | None = None
    """Counts of the bytes in the training text, and of its words."""
    lacks_softmax: bool = False
    """Whether the model has a softmax that its folder lacks: softmax.safetensors is missing."""
    poolings: dict[str, TextPooling] = field(default_factory=dict)
    """Learned ways to pool the vectors of a text, by name; the first is the default."""
    whitening: Whitening | None = None
    """A learned whitening of joined layers."""

    @property
    def config(self) -> BiLMConfig:
        """The network configuration."""
        return self.model.config

    def run(
        self,
        sentences: Sequence[Sequence[str]],
        state: BiLMState | None = None,
        *,
        training: bool = False,
    ) -> tuple[LayerStack, BiLMState]:
        """Run a batch of tokenized sentences; the result includes the boundaries.

        Dropout is active only with `training`, whatever mode the network is in. The result is in
        tensors of torch, or in arrays of numpy if the network is.

        Raises:
            MissingPackageError: `training` without torch.
        """
        ids = encode_batch(self.alphabet, sentences)
        if isinstance(self.model, BiLMArrays):
            if training:
                require_torch("training")
            return self.model.pack().run(*ids, state=state)
        import torch

        device = next(self.model.parameters()).device
        tensors = [None if part is None else torch.from_numpy(part).to(device) for part in ids]
        return self.model(*tensors, state=state, training=training)

    def named_weights(self) -> Iterator[tuple[str, Float[np.ndarray, "..."]]]:
        """Yield the weights of the network as floats, sorted by name."""
        if isinstance(self.model, BiLMArrays):
            yield from self.model.named_weights()
            return
        for name, weight in sorted(self.model.state_dict().items()):
            yield name, weight.cpu().contiguous().numpy()

    def sharing_weights(self) -> "Bundle":
        """Return a bundle with a frozen network of its own that shares memory with these weights.

        In-place writes to these weights, such as an optimizer step, reach the copy too. Moving,
        converting, deep-copying or loading a state dict gives the copy memory of its own first.
        Every other in-place write to the copy's weights writes into these.
        """
        if isinstance(self.model, BiLMArrays):
            return self  # nothing can be written to
        from elmore.weights.modules import copy_for_inference

        return replace(self, model=copy_for_inference(self.model))

    def up_to_layer(self, max_layer: int) -> "Bundle":
        """Return the model without the LSTM layers above `max_layer`.

        Raises:
            ConfigError: There is no such layer.
        """
        most = self.config.lstm.num_layers
        if not isinstance(max_layer, int) or not 1 <= max_layer <= most:
            raise ConfigError(f"max_layer must be between 1 and {most}, found {max_layer!r}")
        model = self.sharing_weights().model
        if isinstance(model, BiLMArrays):
            model = model.truncate(max_layer)
        else:
            model.truncate(max_layer)
        state = self.warm_state
        if state is not None:
            state = BiLMState(state.output[:, :max_layer], state.cell[:, :max_layer])
        whole = replace(self, model=model, options=None, warm_state=state, mixes=())
        if max_layer == most:
            return whole
        # The softmax is on top of the last layer; the rest is learned for all layers
        return replace(whole, softmax=None, lacks_softmax=False, poolings={}, whitening=None)
