"""ElmoModel: the biLM and a mix of its layers, as a model of transformers.

`input_ids` spells each word in a row: first its row in the word table, where the model has one,
then its letters, all one above the ids of training. So 0 fills what a short word or sentence
leaves empty, and the ids of AllenNLP's `batch_to_ids` will do as well. Boundaries are put around
each sentence here, and taken away again: position t is word t, in `labels` too.

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
from transformers import PreTrainedModel
from transformers.utils import ModelOutput, can_return_tuple

from elmore.errors import DataError
from elmore.integrations.huggingface.config import ElmoConfig
from elmore.integrations.huggingface.conversion import FromElmore
from elmore.integrations.huggingface.hub import WithCard
from elmore.model.bilm import BiLM, BiLMState
from elmore.model.mix import ScalarMix
from elmore.model.padding import as_bool
from elmore.model.unique_words import index_unique_words


@dataclass
class ElmoOutput(ModelOutput):
    """What `ElmoModel` gives; everything is zero where no word is."""

    last_hidden_state: Float[Tensor, "B T 2*D"] | None = None
    """The top layer."""
    mixed: Float[Tensor, "B T 2*D"] | None = None
    """The learned mix of all layers: their plain average before any training."""
    hidden_states: tuple[Float[Tensor, "B T 2*D"], ...] | None = None
    """All layers, the token layer first; with `output_hidden_states=True`."""
    mask: Bool[Tensor, "B T"] | None = None
    """Where words are."""


class ElmoPreTrainedModel(FromElmore, WithCard, PreTrainedModel):
    """What all models here share: how to be made, filled, saved and described."""

    config_class = ElmoConfig
    base_model_prefix = "elmo"
    main_input_name = "input_ids"

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Draw what a file should have filled and did not: transformers leaves it as memory was."""
        if isinstance(module, ScalarMix):
            nn.init.zeros_(module.weights)
            nn.init.ones_(module.gamma)
        elif isinstance(module, ElmoModel) and module.warm_output is not None:
            nn.init.zeros_(module.warm_output)
            nn.init.zeros_(module.warm_cell)
        elif hasattr(module, "reset_parameters"):
            module.reset_parameters()


class ElmoModel(ElmoPreTrainedModel):
    """Spelled words in, layers and their mix out."""

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
            weight._is_hf_initialized = not weight.is_meta  # as elmore draws it, if it did
        self.post_init()
        self.train(self.training)

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "B T C"],
        attention_mask: Int[Tensor, "B T"] | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,  # what transformers may pass along
    ) -> ElmoOutput:
        """Run a batch; the mask is 1 where a word is, and may be left out."""
        mask = self._mask(input_ids, attention_mask)
        index, characters, words = self._encoded(input_ids, mask)
        with self._gradient():
            stack, _ = self.bilm(index, characters, words, self._start(len(mask)))
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
        """Switch dropout on or off; a frozen biLM has none, and learns nothing either way.

        transformers gives every weight it loads a gradient, and calls this when it has.
        """
        super().train(mode)
        if self.config.freeze:
            self.bilm.eval().requires_grad_(False)
        return self

    def get_input_embeddings(self) -> nn.Module | None:
        """Give the table of letters, or of words where a model has no letters."""
        tokens = self.bilm.tokens
        return tokens.characters.embedding if tokens.characters is not None else tokens.words

    def _gradient(self) -> AbstractContextManager:
        return torch.set_grad_enabled(torch.is_grad_enabled() and not self.config.freeze)

    def _start(self, num_sentences: int) -> BiLMState | None:
        if self.warm_output is None:
            return None
        rows = (
            part.expand(-1, -1, num_sentences, -1) for part in (self.warm_output, self.warm_cell)
        )
        return BiLMState(*rows)

    def _mask(
        self, ids: Int[Tensor, "B T C"], attention_mask: Int[Tensor, "B T"] | None
    ) -> Bool[Tensor, "B T"]:
        most = self.config.num_columns
        if not isinstance(ids, Tensor):
            raise DataError(
                "input_ids must be a tensor, as ElmoTokenizer makes it with "
                f"return_tensors='pt', found a {type(ids).__name__}"
            )
        if ids.dim() != 3 or ids.shape[2] > most or ids.is_floating_point():
            raise DataError(
                f"input_ids must be whole numbers of shape (sentences, words, {most}), as "
                f"ElmoTokenizer makes them, found {ids.dtype} of shape {tuple(ids.shape)}"
            )
        mask = (ids != 0).any(dim=2)
        if attention_mask is not None:
            mask = mask & as_bool(attention_mask)
        if (mask[:, 1:] & ~mask[:, :-1]).any():
            raise DataError("a word stands after padding; pad sentences on the right")
        return mask

    def _encoded(
        self, ids: Int[Tensor, "B T C"], mask: Bool[Tensor, "B T"]
    ) -> tuple[Int[Tensor, "B T+2"], Int[Tensor, "N C"] | None, Int[Tensor, " N"] | None]:
        """Give the index of a batch, and the letters and the rows of its distinct words."""
        shape, marks = self.config.shape, self.config.boundaries
        width = max(ids.shape[2], *map(len, marks))
        ids = functional.pad(ids, (0, width - ids.shape[2]))
        marks = ids.new_tensor([row + [0] * (width - len(row)) for row in marks])
        index, rows = index_unique_words(ids, mask, marks)
        rows = rows[:, : int((rows != 0).any(dim=0).nonzero().max()) + 1] - 1
        characters, words = rows, None
        if shape.words is not None:
            words, characters = rows[:, 0], rows[:, 1:]
            _check(words, shape.words.num_words)
        if shape.characters is None:
            return index, None, words
        characters = characters.where(characters >= 0, shape.characters.padding_id)
        _check(characters, shape.characters.num_ids)
        return index, characters, words


def _check(ids: Tensor, count: int) -> None:
    """Refuse what is in no table: a GPU would not say what is wrong."""
    if not 0 <= ids.min() <= ids.max() < count:
        raise DataError(
            f"input_ids must be between 1 and {count} where a word is, found {int(ids.min()) + 1} "
            f"to {int(ids.max()) + 1}; are tokenizer and model of one another?"
        )
