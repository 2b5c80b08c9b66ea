"""Embedder: text in, vectors out. The class most users meet.

Shapes: L layers (the token layer is one of them), T tokens, D width of one direction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from jaxtyping import Float

from elmore.embed.batching import batches
from elmore.embed.carry import CarriedRows
from elmore.embed.layers import Layers, check, select
from elmore.errors import ConfigError, DataError
from elmore.model.bilm import BiLMState
from elmore.model.layer_stack import LayerStack
from elmore.text.characters import encode_batch
from elmore.text.tokenizers import Tokenizer, Tokens, penn
from elmore.weights import pretrained
from elmore.weights.bundle import Bundle

Text = str | Sequence[str]
"""A raw string, or a list of tokens."""


@dataclass(frozen=True)
class Sentence:
    """One embedded text."""

    tokens: list[str]
    vectors: Float[np.ndarray, "*L T 2*D"]
    """(tokens, width); with layers="all" (layers, tokens, width)."""
    offsets: list[tuple[int, int]] | None = None
    """Where each token stands in the string, when a string was given."""


class Embedder:
    """A model that reads text: the same sentence gives the same vector, always.

    No state outlives a call, and neighbours in a batch do not touch each other. Only `stateful`
    breaks that promise: each call is then one batch, and starts where the rows of the call before
    stopped, as in AllenNLP and bilm-tf. `token_budget` bounds the padded tokens of a batch.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        device: str = "auto",
        initial_state: Literal["zero", "warm"] = "zero",
        stateful: bool = False,
        tokenizer: Tokenizer = penn,
        token_budget: int = 4096,
    ) -> None:
        if initial_state not in ("zero", "warm"):
            raise ConfigError(f"initial_state must be 'zero' or 'warm', found {initial_state!r}")
        self.bundle = bundle
        self.tokenizer = tokenizer
        self.token_budget = token_budget
        self._carried = CarriedRows() if stateful else None
        self._start = None
        if initial_state == "warm":
            self._start = bundle.warmed().warm_state
        self.to(device)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.bundle.model.parameters()).device

    @property
    def num_layers(self) -> int:
        """L + 1: how many layers `layers="all"` gives."""
        return self.bundle.config.num_layers

    @property
    def width(self) -> int:
        """2D: how wide a vector is."""
        return self.bundle.config.width

    def to(self, device: str | torch.device) -> Self:
        """Move the model; "auto" is a GPU where there is one."""
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.bundle.model.to(device)
        if self._start is not None:
            self._start = BiLMState(*(part.to(device) for part in self._start))
        if self._carried is not None and self._carried.rows is not None:
            self._carried.rows = BiLMState(*(part.to(device) for part in self._carried.rows))
        return self

    def embed(self, texts: Sequence[Text], *, layers: Layers = "average") -> list[Sentence]:
        """Embed each text as one sequence; the results are in the order of the input."""
        if isinstance(texts, str):
            raise DataError(f"embed takes a list of texts; pass [{texts[:30]!r}] for one")
        check(layers, self.num_layers)
        tokens = [self._tokens(text) for text in texts]
        lengths = [len(words) + 2 for words, _ in tokens]
        whole = [range(len(tokens))]
        groups = batches(lengths, self.token_budget) if self._carried is None else whole
        sentences: dict[int, Sentence] = {}
        for group in groups:
            vectors = self._vectors([tokens[i].words for i in group], layers)
            for i, found in zip(group, vectors, strict=True):
                words, offsets = tokens[i]
                sentences[i] = Sentence(
                    words, found, offsets if isinstance(texts[i], str) else None
                )
        return [sentences[i] for i in range(len(tokens))]

    def _tokens(self, text: Text) -> Tokens:
        if isinstance(text, str):
            return self.tokenizer(text)
        words = list(text)
        for word in words:
            if not isinstance(word, str):
                raise DataError(f"expected tokens that are strings, found {word!r}")
        return Tokens(words, [])

    @torch.no_grad()
    def _vectors(self, sentences: list[list[str]], layers: Layers) -> list[np.ndarray]:
        if not sentences:
            return []
        stack = self.run(sentences).without_boundaries()
        chosen = select(stack.states, layers).cpu()  # (*L, B, T, 2D)
        return [
            chosen[..., row, : len(sentence), :].numpy().copy()
            for row, sentence in enumerate(sentences)
        ]

    def run(self, sentences: Sequence[Sequence[str]]) -> LayerStack:
        """Run one batch of tokenised sentences; boundaries are in what comes back."""
        model = self.bundle.model
        ids = encode_batch(self.bundle.alphabet, sentences)
        tensors = [part if part is None else torch.from_numpy(part).to(self.device) for part in ids]
        stack, state = model(*tensors, state=self._starting_state(len(sentences)))
        if self._carried is not None:
            self._carried.put(state)
        return stack

    def _starting_state(self, num_sentences: int) -> BiLMState:
        model = self.bundle.model
        if self._start is None:
            start = model.zero_state(num_sentences, next(model.parameters()))
        else:
            rows = (part.expand(-1, -1, num_sentences, -1) for part in self._start)
            start = BiLMState(*rows)
        return start if self._carried is None else self._carried.take(start)


def load(
    *sources: str | Path,
    vocabulary: str | Path | None = None,
    device: str = "auto",
    max_layer: int | None = None,
    initial_state: Literal["zero", "warm"] = "zero",
    stateful: bool = False,
    tokenizer: Tokenizer = penn,
    progress: Callable[[int, int | None], Any] | None = None,
) -> Embedder:
    """Load a model, ready to embed.

    `sources` is nothing (the bundled English model), a name that `elmore models` lists, a folder of
    ours, a zip, an ELMoForManyLangs folder, a torch state_dict of AllenNLP's Elmo, or options.json
    and weights.hdf5. `vocabulary` is for foreign models that read words instead of characters.
    """
    bundle = pretrained.load(*sources, vocabulary=vocabulary, progress=progress)
    if max_layer is not None:
        bundle = bundle.up_to_layer(max_layer)
    return Embedder(
        bundle, device=device, initial_state=initial_state, stateful=stateful, tokenizer=tokenizer
    )
