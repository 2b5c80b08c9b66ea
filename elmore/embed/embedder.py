"""Embedder: text in, vectors out. The class most users meet.

Shapes: L layers (the token layer is one of them), T tokens, D width of one direction.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from elmore.embed import pooling, sizes
from elmore.embed.alignment import pool_to_spans
from elmore.embed.bulk import Bulk
from elmore.embed.outputs import LayerChoice, check_layers, select_layers
from elmore.embed.pooling import Pool, TextPooling
from elmore.embed.stateful import StatefulRows
from elmore.embed.tokenized import Text, TokenizedText, num_padded, tokenize_text, windows
from elmore.errors import ConfigError, DataError
from elmore.model.bilm import BiLMState
from elmore.model.layer_stack import LayerStack
from elmore.model.precision import Precision, weights_version, with_precision
from elmore.text.tokenizers import Tokenizer, penn
from elmore.weights import pretrained, warm
from elmore.weights.bundle import Bundle

DType = Literal["float32", "float16"]
_DTYPES = {"float32": torch.float32, "float16": torch.float16}

_FEW, _SMALL = 64, 2048  # texts, padded tokens: up to here one batch is quicker than lanes


@dataclass(frozen=True)
class EmbeddedText:
    """One embedded text."""

    tokens: list[str]
    vectors: Float[np.ndarray, "*L T 2*D"]
    """(tokens, width); with layers="all" (layers, tokens, width)."""
    offsets: list[tuple[int, int]] | None = None
    """Where each token stands in the string, when a string was given."""

    def pool_to_spans(self, spans: Sequence[tuple[int, int]]) -> Float[np.ndarray, "*L S 2*D"]:
        """Give vectors for another tokenisation of the same string, told by its offsets.

        Each is the mean of our tokens that it overlaps, weighted by the characters they share.
        """
        if self.offsets is None:
            raise DataError(
                "there is nothing to align with: tokens were given, or the tokenizer rewrote them"
            )
        return pool_to_spans(self.offsets, self.vectors, spans)


class Embedder:
    """A model that reads text: the same sentence gives the same vector, always.

    No state outlives a call, and neighbours in a batch do not touch each other. Only `stateful`
    breaks that promise: each call is then one batch, and starts where the rows of the call before
    stopped, as in AllenNLP and bilm-tf. `precision="fast"` multiplies in bf16 or int8, whichever
    a device is quick at, and elsewhere is exact and says so in the log. `token_budget`
    bounds the tokens that are held at a time (16,384, and on a GPU 262,144), `cache_megabytes` the
    word vectors that are kept for words that come again.

    The embedder has a network of its own: freezing, moving, converting or loading a state dict into
    it does not change the bundle that was given. Their weights share memory until then, so the
    embedder follows a bundle that learns in place, and any other in-place write to
    `embedder.bundle` writes into both.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        device: str = "auto",
        precision: Precision = "exact",
        initial_state: Literal["zero", "warm"] = "zero",
        stateful: bool = False,
        tokenizer: Tokenizer = penn,
        token_budget: int | None = None,
        cache_megabytes: float = 256,
    ) -> None:
        if initial_state not in ("zero", "warm"):
            raise ConfigError(f"initial_state must be 'zero' or 'warm', found {initial_state!r}")
        if precision not in ("exact", "fast"):
            raise ConfigError(f"precision must be 'exact' or 'fast', found {precision!r}")
        if (token_budget is not None and token_budget < 1) or cache_megabytes < 0:
            raise ConfigError(
                f"token_budget must be at least 1 and cache_megabytes not negative, found "
                f"{token_budget} and {cache_megabytes}"
            )
        self.bundle = bundle.sharing_weights()
        self.tokenizer = tokenizer
        self.token_budget = token_budget
        self.cache_megabytes = cache_megabytes
        self.initial_state = initial_state
        self.precision: Precision = precision
        self._carried = StatefulRows() if stateful else None
        self._start = None
        self._prepared: tuple[object, Bundle] | None = None
        if initial_state == "warm":
            self._start = warm.warmed(bundle).warm_state
        self.to(device)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.bundle.model.parameters()).device

    @property
    def is_fast(self) -> bool:
        """Whether numbers are less than exact: fast was asked for, and is quicker here."""
        return self._running is not self.bundle

    @property
    def num_layers(self) -> int:
        """L + 1: how many layers `layers="all"` gives."""
        return self.bundle.config.num_layers

    @property
    def width(self) -> int:
        """2D: how wide a vector is."""
        return self.bundle.config.width

    def to(self, device: str | torch.device) -> Self:
        """Move the model; "auto" is a GPU where there is one.

        With `precision="fast"` the weights are always prepared again, even where the model already
        is on that device. Call `embedder.to(embedder.device)` after writes that torch does not
        count, such as `weight.data.mul_(0.5)`.
        """
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            self.bundle.model.to(device)
        except (RuntimeError, AssertionError) as error:  # torch has no family for it
            reason = str(error).splitlines()[0]
            raise ConfigError(f"device {str(device)!r} cannot be used here: {reason}") from error
        self._prepared = None
        _ = self._running  # what is to be said of the precision is said now
        return self

    @property
    def _running(self) -> Bundle:
        """The bundle that runs; it is prepared again after its weights have changed."""
        if self.precision == "exact":
            return self.bundle
        found, weights = self._prepared, weights_version(self.bundle.model)
        if found is None or found[0] != weights:
            model = with_precision(self.bundle.model, self.precision)
            running = self.bundle
            if model is not running.model:
                running = replace(running, model=model)
            found = self._prepared = weights, running
        return found[1]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out prepared weights: another machine may need others."""
        return {**self.__dict__, "_prepared": None}

    def embed(
        self,
        texts: Iterable[Text],
        *,
        layers: LayerChoice = "average",
        split_sentences: bool = False,
        dtype: DType = "float32",
    ) -> list[EmbeddedText]:
        """Embed each text as one sequence; the results are in the order of the input.

        With `split_sentences` the sentences of a string run each on their own; its result is still
        one, with the tokens of all of them.
        """
        return list(self._each(texts, layers, split_sentences, dtype))

    def stream(
        self,
        texts: Iterable[Text],
        *,
        layers: LayerChoice = "average",
        split_sentences: bool = False,
        dtype: DType = "float32",
    ) -> Iterator[EmbeddedText]:
        """Embed input that does not fit in memory: results come one by one, in its order."""
        if self._carried is not None:
            raise ConfigError("a stateful embedder knows batches, not streams; call embed")
        return self._bulk(self._ready(texts, layers, split_sentences, dtype), layers, dtype)

    def encode(
        self, texts: Iterable[Text], *, pool: Pool = "mean", layers: LayerChoice = "average"
    ) -> Float[np.ndarray, "N 2*D"]:
        """Give one vector per text: the mean or maximum of its tokens, or a learned pooling."""
        if layers == "all":
            raise ConfigError("encode gives one vector per text: layers='all' has no place in it")
        sentences = self._each(texts, layers)
        vectors = [pooling.pool(found.tokens, found.vectors, pool) for found in sentences]
        return np.stack(vectors) if vectors else np.zeros((0, self.width), np.float32)

    def learn_pooling(
        self,
        sample: Iterable[Text],
        *,
        weighted: bool = True,
        remove: int = 3,
        layers: LayerChoice = "average",
    ) -> TextPooling:
        """Learn from a sample how to pool: rare words weigh more, common directions are removed.

        Plain means of ELMo vectors are all alike, because a few directions are shared by all of
        them; without these, texts that mean the same come nearer to each other than others.
        """
        sentences = self.embed(sample, layers=layers)
        pairs = [(found.tokens, found.vectors) for found in sentences]
        return pooling.learn(pairs, weighted=weighted, remove=remove)

    def similarity(
        self,
        a: Iterable[Text] | Float[np.ndarray, "N D"],
        b: Iterable[Text] | Float[np.ndarray, "M D"],
        *,
        pool: Pool = "mean",
        layers: LayerChoice = "average",
    ) -> Float[np.ndarray, "N M"]:
        """Give the cosine of every text of `a` with every text of `b`; vectors may be given too."""
        first, second = (
            side if isinstance(side, np.ndarray) else self.encode(side, pool=pool, layers=layers)
            for side in (a, b)
        )
        return pooling.cosine(first, second)

    def _ready(
        self, texts: Iterable[Text], layers: LayerChoice, split_sentences: bool, dtype: DType
    ) -> Iterator[TokenizedText]:
        if isinstance(texts, str):
            raise DataError(f"a list of texts is expected; pass [{texts[:30]!r}] for one")
        check_layers(layers, self.num_layers)
        if dtype not in _DTYPES:
            raise ConfigError(f"dtype must be 'float32' or 'float16', found {dtype!r}")
        return (
            tokenize_text(text, self.tokenizer, split_sentences=split_sentences) for text in texts
        )

    def _each(
        self,
        texts: Iterable[Text],
        layers: LayerChoice,
        split_sentences: bool = False,
        dtype: DType = "float32",
    ) -> Iterator[EmbeddedText]:
        """Run little text as one batch, more of it through the lanes."""
        ready = self._ready(texts, layers, split_sentences, dtype)
        few = list(ready if self._carried is not None else itertools.islice(ready, _FEW + 1))
        if self._carried is None and (len(few) > _FEW or num_padded(few) > _SMALL):
            return self._bulk(itertools.chain(few, ready), layers, dtype)
        found = self._batch(
            [part for text in few for part in text.segments], _chosen(layers, dtype)
        )
        return (self._sentence(text, found, layers, dtype) for text in few)

    @torch.no_grad()
    def _batch(
        self, parts: list[list[str]], choose: Callable[[Tensor], Tensor]
    ) -> Iterator[np.ndarray]:
        """Run few sentences side by side, padded."""
        if not parts:
            return
        stack = self.run(parts).without_boundaries()
        for row, words in enumerate(parts):
            yield choose(stack.states[:, row, : len(words)]).cpu().numpy()

    def _bulk(
        self, texts: Iterable[TokenizedText], layers: LayerChoice, dtype: DType
    ) -> Iterator[EmbeddedText]:
        """Run any number of sentences, a window at a time."""
        bulk = self.bulk()
        # Each has a part, if an empty one: so no text is held for long before its turn, or after.
        each = (text if text.segments else text._replace(segments=[[]]) for text in texts)
        given, ahead = itertools.tee(each)
        parts = (
            [part for text in window for part in text.segments]
            for window in windows(ahead, bulk.token_budget)
        )
        found = bulk.run(parts, _chosen(layers, dtype))
        for text in given:
            yield self._sentence(text, found, layers, dtype)

    def bulk(self) -> Bulk:
        """Give what runs tokenised sentences in bulk; it keeps the vectors of words it has met."""
        return Bulk(
            self._running,
            self._starting_state(1),
            token_budget=self.token_budget or sizes.of(self.device).tokens,
            cache_megabytes=self.cache_megabytes,
        )

    def _sentence(
        self, text: TokenizedText, found: Iterator[np.ndarray], layers: LayerChoice, dtype: DType
    ) -> EmbeddedText:
        """Take what was chosen for a text's parts from `found`, and keep a copy."""
        chosen = [next(found) for _ in text.segments]
        tokens = list(itertools.chain.from_iterable(text.segments))
        if len(chosen) == 1:
            vectors = chosen[0].copy()
        elif chosen:
            vectors = np.concatenate(chosen, axis=-2)
        else:
            shape = (self.num_layers, 0, self.width) if layers == "all" else (0, self.width)
            vectors = np.zeros(shape, dtype)
        return EmbeddedText(tokens, vectors, text.offsets)

    def run(self, sentences: Sequence[Sequence[str]], *, training: bool = False) -> LayerStack:
        """Run one batch of tokenised sentences; boundaries are in what comes back.

        Without `training` there is no dropout, whatever mode the network is in.
        """
        start = self._starting_state(len(sentences))
        stack, state = self._running.run(sentences, start, training=training)
        if self._carried is not None:
            self._carried.store(state)
        return stack

    def _starting_state(self, num_sentences: int) -> BiLMState:
        model = self.bundle.model
        like = next(model.parameters())
        if self._start is None:
            start = model.zero_state(num_sentences, like)
        else:
            rows = (part.to(like).expand(-1, -1, num_sentences, -1) for part in self._start)
            start = BiLMState(*rows)
        return start if self._carried is None else self._carried.load(start)


def _chosen(layers: LayerChoice, dtype: DType) -> Callable[[Tensor], Tensor]:
    return lambda states: select_layers(states, layers).to(_DTYPES[dtype])


def load(
    *sources: str | Path,
    vocabulary: str | Path | None = None,
    device: str = "auto",
    precision: Precision = "exact",
    max_layer: int | None = None,
    initial_state: Literal["zero", "warm"] = "zero",
    stateful: bool = False,
    tokenizer: Tokenizer = penn,
    token_budget: int | None = None,
    progress: Callable[[int, int | None], Any] | None = None,
) -> Embedder:
    """Load a model, ready to embed.

    `sources` is nothing (the bundled English model), a name that `elmore models` lists, a folder of
    ours, a zip, an ELMoForManyLangs folder, a torch state_dict of AllenNLP's Elmo, a checkpoint of
    bilm-tf, a module of TF-Hub, or options.json and weights.hdf5. `vocabulary` is for foreign
    models that read words instead of characters, and for the softmax of a checkpoint.
    """
    bundle = pretrained.load(*sources, vocabulary=vocabulary, progress=progress)
    if max_layer is not None:
        bundle = bundle.up_to_layer(max_layer)
    return Embedder(
        bundle,
        device=device,
        precision=precision,
        initial_state=initial_state,
        stateful=stateful,
        tokenizer=tokenizer,
        token_budget=token_budget,
    )
