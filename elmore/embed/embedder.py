"""Embedder: text in, vectors out. The class most users meet.

Shapes: L layers (the token layer is one of them), T tokens, D width of one direction.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from jaxtyping import Float

from elmore.embed import incremental, networks, packed, pooling
from elmore.embed.inference_model import InferenceModel
from elmore.embed.outputs import (
    Direction,
    DType,
    EmbeddedText,
    LayerChoice,
    LayerChoices,
    empty_vectors,
    join_segments,
    layer_selector,
    parse_direction,
    resolve_layers,
)
from elmore.embed.pooling import PoolChoice
from elmore.embed.runtime import Runtime
from elmore.embed.stateful import StatefulRows, run_as_batch
from elmore.embed.tokenized import Text, tokenize_text, tokenize_texts
from elmore.errors import ConfigError
from elmore.model.config import Precision
from elmore.model.layer_stack import LayerStack
from elmore.model.state import BiLMState
from elmore.text.tokenizers import Tokenizer, penn
from elmore.weights import warm
from elmore.weights.bundle import Bundle
from elmore.weights.forward_state import ForwardState
from elmore.weights.pooling import TextPooling
from elmore.weights.whitening import Whitening

if TYPE_CHECKING:
    import torch

_log = logging.getLogger(__name__)


class Embedder:
    """A model that turns text into vectors; the same sentence always gets the same vector.

    No recurrent state is kept between calls, and texts of one call do not influence each other.
    What depends on a word alone is cached between calls, which changes no bit of a result; nor does
    autocast, which applies to `run` alone. Threads may share it; it can be pickled and copied.

    The embedder has a network of its own: freezing, moving, converting or loading a state dict into
    it does not change the bundle that was given. Their weights share memory until then, so the
    embedder follows a bundle that is trained in place, and any other in-place write to
    `embedder.bundle` writes into both. `to` says which writes it does not see.

    Args:
        bundle: Network, alphabet and what belongs to them.
        device: "cpu", "cuda", or "auto" for a GPU where there is one.
        precision: "exact" is float32. "fast" multiplies in bf16 or int8, whichever the device is
            quick at; elsewhere it is exact, and a warning says so.
        initial_state: LSTM state before the first token: zeros, or the stored warm-up state.
        stateful: Start each call from the state in which the rows of the last one ended, as
            AllenNLP and bilm-tf do; each call is then one batch.
        tokenizer: Splits strings into words.
        token_budget: Tokens that are held at a time, by default 16,384, and 262,144 on a GPU.
        cache_megabytes: Memory for cached word vectors and gate inputs, by default 448, and 1,256
            on a GPU; the caches grow with the words they meet.

    Raises:
        ConfigError: An argument is impossible, or the device cannot be used.
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
        cache_megabytes: float | None = None,
    ) -> None:
        if initial_state not in ("zero", "warm"):
            raise ConfigError(f"initial_state must be 'zero' or 'warm', found {initial_state!r}")
        self.bundle = bundle.sharing_weights()
        self.tokenizer, self.initial_state = tokenizer, initial_state
        self.token_budget, self.cache_megabytes = token_budget, cache_megabytes
        self.precision: Precision = precision
        self._stateful_rows = StatefulRows() if stateful else None
        self._start = warm.add_warm_state(bundle).warm_state if initial_state == "warm" else None
        self._reset_runtime()
        self.to(device)

    def __repr__(self) -> str:
        name = self.bundle.card.name or "a model"
        return f"<Embedder {name}: {self.num_layers} layers of {self.width}, {self.device}>"

    @property
    def device(self) -> Any:  # noqa: ANN401 -- torch may not be installed
        """Device of the model: a `torch.device`; without torch the CPU, with the same `type`."""
        return networks.device_of(self.bundle.model)

    @property
    def is_fast(self) -> bool:
        """Whether less than float32 is used: "fast" was asked for, and is quicker here."""
        return self._inference.precision == "fast"

    @property
    def num_layers(self) -> int:
        """L + 1: number of layers that `layers="all"` returns."""
        return self.bundle.model.config.num_layers

    @property
    def width(self) -> int:
        """2D: width of a vector."""
        return self.bundle.model.config.width

    @property
    def poolings(self) -> Mapping[str, TextPooling]:
        """Poolings of the model by name; the first is the default of `encode`."""
        return self.bundle.poolings

    @property
    def whitening(self) -> Whitening | None:
        """The whitening of the model, for `layers="whitened"`; None if it has none."""
        return self.bundle.whitening

    def to(self, device: "str | torch.device") -> Self:
        """Move the model, and drop everything that was computed from its weights.

        Call `embedder.to(embedder.device)` after writes that torch does not count, which are not
        seen: through `weight.data`, to tensors created in inference mode, and by fused optimizers
        (`AdamW(fused=True)`) in a training loop of your own.

        Args:
            device: "cpu", "cuda", a torch device, or "auto" for a GPU where there is one.

        Returns:
            The embedder itself.

        Raises:
            ConfigError: The device cannot be used.
        """
        networks.move(self.bundle.model, device)
        self._reset_runtime()
        precision = self._inference.precision  # a warning says where it is not what was asked for
        _log.info("embedding on device %s in %s precision", self.device, precision)
        return self

    def _reset_runtime(self) -> None:
        self._inference = InferenceModel(
            self.bundle,
            self.precision,
            self._start,
            token_budget=self.token_budget,
            cache_megabytes=self.cache_megabytes,
        )

    @property
    def runtime(self) -> Runtime:
        """What every call shares: built on first use, and after weights or backends changed."""
        return self._inference.runtime

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is computed from the weights: another machine may need something else."""
        return {key: value for key, value in self.__dict__.items() if key != "_inference"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled or copied embedder."""
        self.__dict__.update(state)
        self._reset_runtime()

    def embed(
        self,
        texts: Iterable[Text],
        *,
        layers: LayerChoices = "average",
        direction: Direction = "both",
        split_sentences: bool = False,
        dtype: DType = "float32",
    ) -> list[EmbeddedText]:
        """Embed each text as one sequence.

        Args:
            texts: Strings, or lists of tokens.
            layers: "average", "all", "top", the number of a layer, a saved mix, "cloze" (the top
                layer on both sides of a word, without the word itself), "whitened" (the whitening
                of the model), or a whitening. A list of these stacks their vectors.
            direction: "both", or "forward" or "backward" alone, which takes half the time; the
                vectors are then half as wide.
            split_sentences: Run the sentences of a string each on their own; the result for a
                string is still one, with the tokens of all its sentences.
            dtype: Type of the numbers returned.

        Returns:
            One result per text, in the order of the input.

        Raises:
            DataError: Something in `texts` is not a text.
            ConfigError: The model has no such layers.
        """
        return list(self._run(texts, layers, split_sentences, dtype, direction))

    def stream(
        self,
        texts: Iterable[Text],
        *,
        layers: LayerChoices = "average",
        direction: Direction = "both",
        split_sentences: bool = False,
        dtype: DType = "float32",
    ) -> Iterator[EmbeddedText]:
        """Embed input that does not fit in memory; the results are those of `embed`.

        Args:
            texts: Strings, or lists of tokens; they are taken from the iterable as needed.
            layers: As in `embed`.
            direction: As in `embed`.
            split_sentences: As in `embed`.
            dtype: As in `embed`.

        Returns:
            An iterator over the results, in the order of the input.

        Raises:
            DataError: Something in `texts` is not a text.
            ConfigError: The model has no such layers, or is stateful.
        """
        if self._stateful_rows is not None:
            raise ConfigError("a stateful embedder runs batches, not streams; call embed")
        return self._run(texts, layers, split_sentences, dtype, direction)

    def step(
        self,
        text: Text,
        state: ForwardState | None = None,
        *,
        layers: LayerChoices = "average",
        dtype: DType = "float32",
        cells: bool = False,
    ) -> tuple[EmbeddedText, ForwardState]:
        """Embed the next words of a text that is still growing, in the forward direction.

        The vectors are those of `embed(direction="forward")` for the whole text, however it is
        split: with the native library to the bit, elsewhere to float32's rounding.

        Args:
            text: The next words: a string, or a list of tokens; it may be one word, or none.
            state: What the last call for this text returned; None at its start.
            layers: As in `embed`.
            dtype: As in `embed`.
            cells: Whether to return the memory cells of the LSTM layers, too.

        Returns:
            The words with their vectors, and the state after them.

        Raises:
            DataError: `text` is not a text, or the state is of another model or precision.
            ConfigError: The model has no such layers.
        """
        words = tokenize_text(text, self.tokenizer)
        layers = resolve_layers(layers, self.num_layers, self.whitening)
        parse_direction("forward", layers)
        select = layer_selector(layers, dtype)
        return incremental.embed_next(self._inference, words, state, select, cells=cells)

    def encode(
        self, texts: Iterable[Text], *, pool: PoolChoice = None, layers: LayerChoice | None = None
    ) -> Float[np.ndarray, "N K"]:
        """Return one vector per text.

        Args:
            texts: Strings, or lists of tokens.
            pool: "mean" or "max" over the tokens, the name of one of `poolings`, or a pooling from
                `learn_pooling`. Default: the first of `poolings`, the mean if there are none or if
                `layers` are given.
            layers: As in `embed`, but for "all". Default: those of the pooling, or "average".

        Returns:
            Vectors (texts, width of the pooling); zeros for a text without words.

        Raises:
            DataError: Something in `texts` is not a text, or the pooling has another width.
            ConfigError: The model has no such pooling or layers, or they do not fit.
        """
        how, layers = pooling.find_pooling(self.poolings, pool, layers)
        embedded = ((text.tokens, text.vectors) for text in self._run(texts, layers))
        return pooling.pool_texts(embedded, how, self.width)

    def learn_pooling(
        self,
        sample: Iterable[Text],
        *,
        weighted: bool = True,
        remove: int = 3,
        layers: LayerChoice = "average",
    ) -> TextPooling:
        """Learn from a sample of texts how to pool token vectors into text vectors.

        The means of any two texts share strong directions, without which they differ more.

        Args:
            sample: Texts like those that will be pooled.
            weighted: Whether rare words weigh more than frequent ones.
            remove: Number of directions to remove.
            layers: As in `encode`, to which the result is given.

        Returns:
            A pooling for `encode(pool=...)`.

        Raises:
            DataError: The sample has fewer than two texts with words.
            ConfigError: `remove` is negative, or the model has no such layers.
        """
        texts = self.embed(sample, layers=layers)
        pairs = [(text.tokens, text.vectors) for text in texts]
        return pooling.learn(pairs, weighted=weighted, remove=remove)

    def similarity(
        self,
        a: Iterable[Text] | Float[np.ndarray, "N D"],
        b: Iterable[Text] | Float[np.ndarray, "M D"],
        *,
        pool: PoolChoice = None,
        layers: LayerChoice | None = None,
    ) -> Float[np.ndarray, "N M"]:
        """Return the cosine of every text of `a` with every text of `b`.

        Args:
            a: Texts, or their vectors.
            b: Texts, or their vectors.
            pool: As in `encode`.
            layers: As in `encode`.

        Returns:
            Cosines (texts of a, texts of b).

        Raises:
            DataError: The vectors of `a` and `b` differ in width.
            ConfigError: The model has no such pooling or layers, or they do not fit.
        """
        first, second = (
            side if isinstance(side, np.ndarray) else self.encode(side, pool=pool, layers=layers)
            for side in (a, b)
        )
        return pooling.cosine(first, second)

    def run(self, sentences: Sequence[Sequence[str]], *, training: bool = False) -> LayerStack:
        """Run tokenised sentences as one padded batch, with gradients where they are enabled.

        Args:
            sentences: Tokens of each sentence; boundary tokens are added.
            training: Whether dropout is applied, whatever mode the network is in.

        Returns:
            Every layer of every token, the boundary tokens included.
        """
        start = self._initial_state(len(sentences))
        stack, state = self._inference.bundle.run(sentences, start, training=training)
        if self._stateful_rows is not None:
            self._stateful_rows.store(state)
        return stack

    def _run(
        self,
        texts: Iterable[Text],
        layers: LayerChoices,
        split_sentences: bool = False,
        dtype: DType = "float32",
        direction: Direction = "both",
    ) -> Iterator[EmbeddedText]:
        tokenized = tokenize_texts(texts, self.tokenizer, split_sentences=split_sentences)
        layers = resolve_layers(layers, self.num_layers, self.whitening)
        directions, select = parse_direction(direction, layers), layer_selector(layers, dtype)
        if self._stateful_rows is not None:
            if direction != "both":
                raise ConfigError(
                    f"direction={direction!r}: a stateful embedder runs both; load another one"
                )
            device = networks.io_device(self.bundle.model)
            with device.inference():
                results = list(run_as_batch(self.run, tokenized, select, device))
        else:
            results = packed.embed_texts(self.runtime, tokenized, select, directions)
        width = len(directions) * self.width // 2
        empty = empty_vectors(layers, self.num_layers, width, dtype)
        return (join_segments(text, arrays, empty) for text, arrays in results)

    def _initial_state(self, num_sentences: int) -> BiLMState:
        rows = networks.start_rows(self.bundle.model, self._start, num_sentences)
        return rows if self._stateful_rows is None else self._stateful_rows.load(rows)
