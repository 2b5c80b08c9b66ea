"""Embedder: text in, vectors out. The class most users meet.

Shapes: L layers (the token layer is one of them), T tokens, D width of one direction.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from elmore.model.bilm import BiLM, BiLMState
from elmore.model.layer_stack import LayerStack
from elmore.text.characters import check_tokens
from elmore.text.tokenizers import Tokenizer, Tokens, penn
from elmore.weights import pretrained, warm
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
            self._start = warm.warmed(bundle).warm_state
        bundle.model.requires_grad_(False)
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
        try:
            self.bundle.model.to(device)
        except (RuntimeError, AssertionError) as error:  # torch has no family for it
            reason = str(error).splitlines()[0]
            raise ConfigError(f"device {str(device)!r} cannot be used here: {reason}") from error
        return self

    def embed(self, texts: Sequence[Text], *, layers: Layers = "average") -> list[Sentence]:
        """Embed each text as one sequence; the results are in the order of the input."""
        if isinstance(texts, str):
            raise DataError(f"embed takes a list of texts; pass [{texts[:30]!r}] for one")
        check(layers, self.num_layers)
        texts = list(texts)
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
        if text is None or isinstance(text, bytes):
            raise DataError(f"expected a string or a list of tokens, found {text!r}")
        words = list(text)
        check_tokens(words)
        return Tokens(words, [])

    @torch.no_grad()
    def _vectors(self, sentences: list[list[str]], layers: Layers) -> list[np.ndarray]:
        if not sentences:
            return []
        with _without_dropout(self.bundle.model):
            stack = self.run(sentences).without_boundaries()
        chosen = select(stack.states, layers).cpu()  # (*L, B, T, 2D)
        return [
            chosen[..., row, : len(sentence), :].numpy().copy()
            for row, sentence in enumerate(sentences)
        ]

    def run(self, sentences: Sequence[Sequence[str]]) -> LayerStack:
        """Run one batch of tokenised sentences; boundaries are in what comes back."""
        stack, state = self.bundle.run(sentences, self._starting_state(len(sentences)))
        if self._carried is not None:
            self._carried.put(state)
        return stack

    def _starting_state(self, num_sentences: int) -> BiLMState:
        model = self.bundle.model
        like = next(model.parameters())
        if self._start is None:
            start = model.zero_state(num_sentences, like)
        else:
            rows = (part.to(like).expand(-1, -1, num_sentences, -1) for part in self._start)
            start = BiLMState(*rows)
        return start if self._carried is None else self._carried.take(start)


@contextmanager
def _without_dropout(model: BiLM) -> Iterator[None]:
    """A model that is being fine-tuned has dropout; its vectors never do."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


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
