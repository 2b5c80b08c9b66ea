"""ElmoModel: the biLM and a scalar mix of its layers, as a transformers model.

Each word is a row of `input_ids`: its row in the word table, if the model has one, then its
characters, all shifted by one so that 0 is padding. The ids of AllenNLP's `batch_to_ids` have this
form too. The model adds sentence boundaries and removes them again: position t is word t, in
`labels` too.

Shapes: L layers (the token layer is one of them), B sentences, T words, C ids per word, D width of
one direction.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional
from transformers.utils import ModelOutput, can_return_tuple

from elmore.errors import ConfigError, DataError
from elmore.integrations.huggingface.config import ElmoConfig
from elmore.integrations.huggingface.pretrained import ElmoPreTrainedModel
from elmore.model.bilm import BiLM, BiLMState
from elmore.model.mix import ScalarMix
from elmore.model.padding import as_bool
from elmore.model.saved_mix import SavedMix
from elmore.model.unique_words import index_unique_words
from elmore.weights.bundle import Bundle


@dataclass
class ElmoOutput(ModelOutput):
    """Output of `ElmoModel`; vectors of padding are zero."""

    last_hidden_state: Float[Tensor, "B T 2*D"] | None = None
    """The top layer."""
    mixed: Float[Tensor, "B T 2*D"] | None = None
    """Scalar mix of all layers; an untrained mix is their average."""
    hidden_states: tuple[Float[Tensor, "B T 2*D"], ...] | None = None
    """All layers, the token layer first; with `output_hidden_states=True`."""
    mask: Bool[Tensor, "B T"] | None = None
    """True where there is a word."""


class ElmoModel(ElmoPreTrainedModel):
    """The biLM and the scalar mix of its layers, from character ids.

    Args:
        config: Shape of the biLM and of the mix.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        shape = config.shape
        self.bilm = BiLM(shape)
        self.mix = ScalarMix(
            shape.num_layers, layer_norm=config.layer_norm, last_only=config.last_only
        )
        start = self.bilm.zero_state(1, torch.empty(0)) if config.initial_state == "warm" else None
        self.register_buffer("warm_output", start.output if start else None)
        self.register_buffer("warm_cell", start.cell if start else None)
        for weight in self.parameters():
            weight._is_hf_initialized = not weight.is_meta  # initialized by elmore's own modules
        self.post_init()
        self.train(self.training)

    @torch.no_grad()
    def load_bundle(self, bundle: Bundle, mix: SavedMix | None) -> None:
        """Copy the weights of an elmore model and its warm-up state.

        Args:
            bundle: The elmore model.
            mix: Values of the mix; None leaves the mix as it is.

        Raises:
            ConfigError: The mix does not have one weight per layer.
        """
        self.bilm.load_state_dict(bundle.model.state_dict())
        if self.warm_output is not None and bundle.warm_state is not None:
            self.warm_output.copy_(bundle.warm_state.output)
            self.warm_cell.copy_(bundle.warm_state.cell)
        if mix is not None:
            if len(mix.weights) != len(self.mix.weights):
                raise ConfigError(
                    f"this mix has {len(mix.weights)} weights, the model {len(self.mix.weights)}"
                )
            self.mix.weights.copy_(torch.tensor(mix.weights))
            self.mix.gamma.fill_(mix.gamma)

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "B T C"],
        attention_mask: Int[Tensor, "B T"] | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,  # ignored; transformers may pass more
    ) -> ElmoOutput:
        """Run a batch.

        Args:
            input_ids: From `ElmoTokenizer`.
            attention_mask: 1 where there is a word; default: where any id is not 0.
            output_hidden_states: Whether to return all layers.
            kwargs: Ignored.

        Returns:
            The top layer, the mix, and all layers if they were asked for.

        Raises:
            DataError: The ids have a wrong shape or range, or padding precedes a word.
        """
        mask = self._mask(input_ids, attention_mask)
        index, characters, words = self._encode(input_ids, mask)
        with self._grad_mode():
            stack, _ = self.bilm(index, characters, words, self._initial_state(len(mask)))
        states = stack.without_boundaries().states
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        return ElmoOutput(
            last_hidden_state=states[-1],
            mixed=self.mix(states) * mask[:, :, None],
            hidden_states=tuple(states) if output_hidden_states else None,
            mask=mask,
        )

    def train(self, mode: bool = True) -> Self:
        """Set training mode; a frozen biLM stays in evaluation mode, without gradients.

        transformers sets `requires_grad` on every weight it loads, and then calls this method.
        """
        super().train(mode)
        if self.config.freeze:
            self.bilm.eval().requires_grad_(False)
        return self

    def get_input_embeddings(self) -> nn.Module | None:
        """Return the character embedding, or the word embedding of a model without characters."""
        tokens = self.bilm.tokens
        return tokens.characters.embedding if tokens.characters is not None else tokens.words

    def _grad_mode(self) -> AbstractContextManager:
        return torch.set_grad_enabled(torch.is_grad_enabled() and not self.config.freeze)

    def _initial_state(self, num_sentences: int) -> BiLMState | None:
        if self.warm_output is None:
            return None
        rows = (
            part.expand(-1, -1, num_sentences, -1) for part in (self.warm_output, self.warm_cell)
        )
        return BiLMState(*rows)

    def _mask(
        self, ids: Int[Tensor, "B T C"], attention_mask: Int[Tensor, "B T"] | None
    ) -> Bool[Tensor, "B T"]:
        num_columns = self.config.num_columns
        if not isinstance(ids, Tensor):
            raise DataError(
                "input_ids must be a tensor, as ElmoTokenizer returns it with "
                f"return_tensors='pt', found a {type(ids).__name__}"
            )
        if ids.dim() != 3 or ids.shape[2] > num_columns or ids.is_floating_point():
            raise DataError(
                f"input_ids must be integers of shape (sentences, words, {num_columns}), as "
                f"ElmoTokenizer returns them, found {ids.dtype} of shape {tuple(ids.shape)}"
            )
        mask = (ids != 0).any(dim=2)
        if ids.numel() and ids.min() < 0:
            raise DataError(f"input_ids must not be negative, found {int(ids.min())}")
        if attention_mask is not None:
            if attention_mask.shape != mask.shape:
                raise DataError(
                    f"attention_mask has shape {tuple(attention_mask.shape)}, input_ids have "
                    f"{tuple(mask.shape)} words; pass both as ElmoTokenizer returns them"
                )
            mask = mask & as_bool(attention_mask)
        if (mask[:, 1:] & ~mask[:, :-1]).any():
            raise DataError("a word follows padding; pad sentences on the right")
        return mask

    def _encode(
        self, ids: Int[Tensor, "B T C"], mask: Bool[Tensor, "B T"]
    ) -> tuple[Int[Tensor, "B T+2"], Int[Tensor, "N C"] | None, Int[Tensor, " N"] | None]:
        """Return the index of a batch, and the characters and table rows of its distinct words."""
        shape, marks = self.config.shape, self.config.boundaries
        width = max(ids.shape[2], *map(len, marks))
        ids = functional.pad(ids, (0, width - ids.shape[2]))
        marks = ids.new_tensor([row + [0] * (width - len(row)) for row in marks])
        index, rows = index_unique_words(ids, mask, marks)
        rows = rows[:, : int((rows != 0).any(dim=0).nonzero().max()) + 1] - 1
        characters, words = rows, None
        if shape.words is not None:
            words, characters = rows[:, 0], rows[:, 1:]
            _check_range(words, shape.words.num_words)
        if shape.characters is None:
            return index, None, words
        characters = characters.where(characters >= 0, shape.characters.padding_id)
        _check_range(characters, shape.characters.num_ids)
        return index, characters, words


def _check_range(ids: Tensor, count: int) -> None:
    """Raise an error for ids outside a table; on a GPU the lookup would crash without a reason."""
    if not 0 <= ids.min() <= ids.max() < count:
        raise DataError(
            f"input_ids must be between 1 and {count} where a word is, found {int(ids.min()) + 1} "
            f"to {int(ids.max()) + 1}; does the tokenizer belong to the model?"
        )
