"""A tok2vec layer for spaCy's own components: a frozen biLM and a trainable mix of its layers.

    mixed[t] = gamma * sum_l softmax(weights)[l] * layers[l, t]        (Peters et al., 2018, eq. 1)

Its name in a config is `@architectures = "elmore.Tok2Vec.v1"`, an entry point of this package.

Shapes: L layers (the token layer is one of them), T tokens of a Doc, S tokens of a batch, D width.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Literal, cast

import numpy as np
from jaxtyping import Float
from spacy.tokens import Doc
from thinc.api import Linear, Model, chain, with_array
from thinc.shims import Shim
from thinc.types import Floats1d, Floats2d, Floats3d

from elmore.errors import ConfigError
from elmore.integrations.spacy_embedder import DocEmbedder
from elmore.weights import catalogue

Tok2Vec = Model[list[Doc], list[Floats2d]]


def tok2vec(
    model: str | list[str] = catalogue.BUNDLED,
    width: int | None = None,
    precision: Literal["exact", "fast"] = "exact",
    device: str = "auto",
    batch_tokens: int = 16384,
    cache_megabytes: int = 1000,
) -> Tok2Vec:
    """Build the layer: Docs in, one vector per token out.

    Args:
        model: What `elmore.load` takes.
        width: Project the vectors to this width; default: the width of the model. Before an
            encoder, pass the width of the encoder.
        precision: "exact" or "fast".
        device: "auto", "cpu" or "cuda".
        batch_tokens: Tokens per batch.
        cache_megabytes: Memory for biLM layers during training, so that a text is embedded once and
            not in every epoch.

    Returns:
        The layer; the model is loaded when it is initialized.

    Raises:
        ConfigError: `cache_megabytes` is negative.
    """
    if cache_megabytes < 0:
        raise ConfigError(f"cache_megabytes must not be negative, found {cache_megabytes}")
    embedder = DocEmbedder(model, device=device, precision=precision, batch_tokens=batch_tokens)
    mix: Tok2Vec = Model(
        "elmore",
        forward,
        init=init,
        dims={"nO": None},
        params={"weights": None, "gamma": None},
        shims=[FrozenBiLM(embedder, cache_megabytes)],
    )
    return mix if width is None else chain(mix, with_array(Linear(nO=width)))


class FrozenBiLM(Shim):
    """The biLM as a thinc shim: saved with the layer, never trained.

    Args:
        embedder: The model.
        cache_megabytes: Memory for layers of training texts.
    """

    def __init__(self, embedder: DocEmbedder, cache_megabytes: float) -> None:
        super().__init__(embedder)
        self.embedder = embedder
        self.cache_megabytes = cache_megabytes
        self._cache: dict[tuple, Float[np.ndarray, "L T D"]] = {}
        self._free_bytes: float | None = None  # None before training

    def layers(self, docs: list[Doc], is_train: bool) -> list[Float[np.ndarray, "L T D"]]:
        """Return the layers of each Doc, from the cache where possible.

        Args:
            docs: The Docs.
            is_train: Whether the layers are cached for the next epoch.
        """
        if is_train and self._free_bytes is None:
            self._free_bytes = self.cache_megabytes * 1e6
        if not self._free_bytes and not self._cache:
            return self.embedder.embed(docs, "all")
        keys = [_key(doc) for doc in docs]
        new = {key: doc for key, doc in zip(keys, docs, strict=True) if key not in self._cache}
        computed = dict(zip(new, self.embedder.embed(new.values(), "all"), strict=True))
        layers = [computed[key] if key in computed else self._cache[key] for key in keys]
        self._store(computed)
        return layers

    def _store(self, computed: dict[tuple, Float[np.ndarray, "L T D"]]) -> None:
        """Cache what fits; nothing is evicted, because every epoch needs every text."""
        for key, layers in computed.items():
            if self._free_bytes is not None and layers.nbytes <= self._free_bytes:
                self._cache[key] = layers
                self._free_bytes -= layers.nbytes

    def finish_update(self, optimizer: object) -> None:
        """Do nothing: the biLM is frozen."""

    @contextlib.contextmanager
    def use_params(self, params: object) -> Iterator[None]:
        """Do nothing: the biLM has no trainable parameters."""
        yield

    def to_device(self, device_type: str, device_id: int) -> None:
        """Do nothing: the config sets the device."""

    def copy(self) -> "FrozenBiLM":
        """Return a shim with the same biLM, which never changes."""
        return FrozenBiLM(self.embedder, self.cache_megabytes)

    def to_bytes(self) -> bytes:
        """Return the weights, or the digest of the bundled model."""
        return self.embedder.to_bytes()

    def from_bytes(self, data: bytes) -> "FrozenBiLM":
        """Load saved weights."""
        self.embedder.from_bytes(data)
        self._cache, self._free_bytes = {}, None
        return self


def _key(doc: Doc) -> tuple:
    """Return the cache key: the words, and where sentences start."""
    return tuple((token.text, token.is_sent_start) for token in doc)


def init(model: Tok2Vec, X: Any = None, Y: Any = None) -> None:  # noqa: ANN401, N803 -- thinc's names
    """Load the biLM and initialize the mix to the average of its layers.

    Args:
        model: The layer.
        X: Sample input of thinc; not used.
        Y: Sample output of thinc; not used.
    """
    embedder = cast("FrozenBiLM", model.shims[0]).embedder.embedder
    model.set_dim("nO", embedder.width)
    model.set_param("weights", model.ops.alloc1f(embedder.num_layers))
    model.set_param("gamma", model.ops.alloc1f(1) + 1)


def forward(
    model: Tok2Vec, docs: list[Doc], is_train: bool
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], list]]:
    """Mix the layers of each Doc; the gradient stops at the weights of the mix.

    Args:
        model: The layer.
        docs: The Docs.
        is_train: Whether the layers of the biLM are cached.

    Returns:
        One array (tokens, width) per Doc, and the function that propagates gradients.
    """
    xp = model.ops.xp
    arrays = cast("FrozenBiLM", model.shims[0]).layers(docs, is_train)
    layers: list[Floats3d] = [model.ops.asarray(part) for part in arrays]
    gamma, layer_weights = model.get_param("gamma"), _softmax(model.get_param("weights"), xp)
    averages = [xp.tensordot(layer_weights, part, axes=1) for part in layers]  # (T, D) each

    def backprop(d_mixed: list[Floats2d]) -> list:
        d_weights, d_gamma = xp.zeros_like(layer_weights), xp.zeros_like(gamma)
        for part, average, d_part in zip(layers, averages, d_mixed, strict=True):
            d_weights += gamma * xp.tensordot(part, d_part, axes=((1, 2), (0, 1)))
            d_gamma += (average * d_part).sum()
        model.inc_grad("weights", layer_weights * (d_weights - (layer_weights * d_weights).sum()))
        model.inc_grad("gamma", d_gamma)
        return []

    return [gamma * average for average in averages], backprop


def _softmax(weights: Floats1d, xp: Any) -> Floats1d:  # noqa: ANN401 -- numpy or cupy
    exponentials = xp.exp(weights - weights.max())
    return exponentials / exponentials.sum()
