"""A tok2vec layer for spaCy's own components: a frozen biLM, and a mix of its layers that learns.

    mixed[t] = gamma * sum_l softmax(weights)[l] * layers[l, t]        (Peters et al., 2018, eq. 1)

In a config it is `@architectures = "elmore.Tok2Vec.v1"`, by an entry point of this package.

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
from elmore.integrations.spacy_reader import DocReader
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
    """Make the layer: docs in, a vector for each token out.

    Vectors are as wide as the model's, or projected to `width` where it is given; one that stands
    as `embed` before an encoder has to have the encoder's. While a pipeline is trained, the layers
    of up to `cache_megabytes` are kept, so that the biLM reads a text once and not in every epoch.
    """
    if cache_megabytes < 0:
        raise ConfigError(f"cache_megabytes must not be negative, found {cache_megabytes}")
    reader = DocReader(model, device=device, precision=precision, batch_tokens=batch_tokens)
    mix: Tok2Vec = Model(
        "elmore",
        forward,
        init=init,
        dims={"nO": None},
        params={"weights": None, "gamma": None},
        shims=[FrozenBiLM(reader, cache_megabytes)],
    )
    return mix if width is None else chain(mix, with_array(Linear(nO=width)))


class FrozenBiLM(Shim):
    """The biLM, which thinc saves and moves with the layer, but never trains."""

    def __init__(self, reader: DocReader, cache_megabytes: float) -> None:
        super().__init__(reader)
        self.reader = reader
        self.cache_megabytes = cache_megabytes
        self._kept: dict[tuple, Float[np.ndarray, "L T D"]] = {}
        self._room: float | None = None  # bytes; None before any training

    def layers(self, docs: list[Doc], is_train: bool) -> list[Float[np.ndarray, "L T D"]]:
        """Give the layers of each Doc, those that were read before from memory."""
        if is_train and self._room is None:
            self._room = self.cache_megabytes * 1e6
        if not self._room and not self._kept:
            return self.reader.read(docs, "all")
        keys = [_key(doc) for doc in docs]
        new = {key: doc for key, doc in zip(keys, docs, strict=True) if key not in self._kept}
        read = dict(zip(new, self.reader.read(new.values(), "all"), strict=True))
        found = [read[key] if key in read else self._kept[key] for key in keys]
        self._keep(read)
        return found

    def _keep(self, read: dict[tuple, Float[np.ndarray, "L T D"]]) -> None:
        """Keep what there is room for; nothing is put out, for every epoch needs all of it."""
        for key, layers in read.items():
            if self._room is not None and layers.nbytes <= self._room:
                self._kept[key] = layers
                self._room -= layers.nbytes

    def finish_update(self, optimizer: object) -> None:
        """Learn nothing."""

    @contextlib.contextmanager
    def use_params(self, params: object) -> Iterator[None]:
        """Stay the same, whatever the other parameters are for a while."""
        yield

    def to_device(self, device_type: str, device_id: int) -> None:
        """Stay where the config says."""

    def copy(self) -> "FrozenBiLM":
        """Share the biLM: no copy can change it."""
        return FrozenBiLM(self.reader, self.cache_megabytes)

    def to_bytes(self) -> bytes:
        """Give the weights, unless they are those of the package."""
        return self.reader.to_bytes()

    def from_bytes(self, data: bytes) -> "FrozenBiLM":
        """Take the weights that were saved."""
        self.reader.from_bytes(data)
        self._kept, self._room = {}, None
        return self


def _key(doc: Doc) -> tuple:
    """Tell apart what is read differently: the words, and where sentences start."""
    return tuple((token.text, token.is_sent_start) for token in doc)


def init(model: Tok2Vec, X: Any = None, Y: Any = None) -> None:  # noqa: ANN401, N803 -- thinc's names
    """Load the biLM, and start as the plain average of its layers."""
    embedder = cast("FrozenBiLM", model.shims[0]).reader.embedder
    model.set_dim("nO", embedder.width)
    model.set_param("weights", model.ops.alloc1f(embedder.num_layers))
    model.set_param("gamma", model.ops.alloc1f(1) + 1)


def forward(
    model: Tok2Vec, docs: list[Doc], is_train: bool
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], list]]:
    """Mix the layers of each Doc; the gradient stops at the weights of the mix."""
    xp = model.ops.xp
    found = cast("FrozenBiLM", model.shims[0]).layers(docs, is_train)
    layers: list[Floats3d] = [model.ops.asarray(part) for part in found]
    gamma, shares = model.get_param("gamma"), _softmax(model.get_param("weights"), xp)
    averages = [xp.tensordot(shares, part, axes=1) for part in layers]  # (T, D) each

    def backprop(d_mixed: list[Floats2d]) -> list:
        d_shares, d_gamma = xp.zeros_like(shares), xp.zeros_like(gamma)
        for part, average, d_part in zip(layers, averages, d_mixed, strict=True):
            d_shares += gamma * xp.tensordot(part, d_part, axes=((1, 2), (0, 1)))
            d_gamma += (average * d_part).sum()
        model.inc_grad("weights", shares * (d_shares - (shares * d_shares).sum()))
        model.inc_grad("gamma", d_gamma)
        return []

    return [gamma * average for average in averages], backprop


def _softmax(weights: Floats1d, xp: Any) -> Floats1d:  # noqa: ANN401 -- numpy or cupy
    raised = xp.exp(weights - weights.max())
    return raised / raised.sum()
