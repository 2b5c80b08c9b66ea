"""`nlp.add_pipe("elmore")`: contextual vectors for spaCy's own tokens.

The component fills `Doc.tensor`, one row per token, and sets the hooks for `vector`, `has_vector`
and `similarity` of Docs, Spans and Tokens. spaCy finds it, and the layer of `spacy_tok2vec`, by the
entry points of this package: nothing has to be imported.

Shapes: T tokens of a Doc, D width.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from elmore.errors import ConfigError, DataError, MissingPackageError

try:
    import spacy  # noqa: F401 -- for the error message below
except ImportError as error:
    raise MissingPackageError(
        "elmore.integrations.spacy needs spaCy: pip install 'elmore[spacy]'"
    ) from error

import numpy as np
from jaxtyping import Float
from spacy.language import Language
from spacy.pipeline import Pipe
from spacy.tokens import Doc, Span, Token
from spacy.util import SimpleFrozenList

from elmore.embed import pooling
from elmore.embed.outputs import LayerChoice, parse_layers, resolve_layers
from elmore.integrations.spacy_embedder import DocEmbedder
from elmore.model.saved_mix import SavedMix
from elmore.weights import catalogue

Part = Doc | Span | Token
"""Objects of spaCy that have vectors."""


class ElmoComponent(Pipe):
    """Contextual vectors for the tokens of a Doc; whitespace has zeros and no vector.

    Args:
        embedder: The model.
        layers: As in `Embedder.embed`, but for "all".
        name: Name of the component in its pipeline.
        batch_tokens: Tokens per batch.
    """

    def __init__(
        self, embedder: DocEmbedder, layers: LayerChoice, *, name: str, batch_tokens: int
    ) -> None:
        self.name = name
        self.embedder = embedder
        self.layers = layers
        self.batch_tokens = batch_tokens

    def __call__(self, doc: Doc) -> Doc:
        """Fill the tensor of one Doc."""
        self._fill([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 1000) -> Iterator[Doc]:
        """Fill the tensors of many Docs; a batch has `batch_size` Docs or `batch_tokens` tokens."""
        handle = self.get_error_handler()
        for docs in _batches(stream, batch_size, self.batch_tokens):
            try:
                self._fill(docs)
            except Exception as error:  # the handler of the pipeline decides
                handle(self.name, self, docs, error)
            else:
                yield from docs

    def _fill(self, docs: list[Doc]) -> None:
        for doc, vectors in zip(docs, self.embedder.embed(docs, self.layers), strict=True):
            doc.tensor = vectors
            # No hook for norms: spaCy computes them itself, and calls that of a Span wrongly.
            for hooks in (doc.user_hooks, doc.user_span_hooks, doc.user_token_hooks):
                hooks.update(vector=vector, has_vector=has_vector, similarity=similarity)

    def initialize(
        self, get_examples: Callable[[], Iterable[Any]], *, nlp: Language | None = None
    ) -> None:
        """Load the model, so that a wrong name or layer is reported before training begins."""
        embedder = self.embedder.embedder
        resolve_layers(self.layers, embedder.num_layers, embedder.whitening)

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = SimpleFrozenList()) -> None:
        """Save the weights, unless the model is the bundled one or `exclude` has "model"."""
        if "model" not in exclude:
            self.embedder.to_disk(Path(path))

    def from_disk(
        self, path: str | Path, *, exclude: Iterable[str] = SimpleFrozenList()
    ) -> "ElmoComponent":
        """Load saved weights."""
        if "model" not in exclude:
            self.embedder.from_disk(Path(path))
        return self

    def to_bytes(self, *, exclude: Iterable[str] = SimpleFrozenList()) -> bytes:
        """Return what `to_disk` saves as bytes."""
        return b"" if "model" in exclude else self.embedder.to_bytes()

    def from_bytes(
        self, data: bytes, *, exclude: Iterable[str] = SimpleFrozenList()
    ) -> "ElmoComponent":
        """Load what `to_bytes` returned."""
        if data and "model" not in exclude:
            self.embedder.from_bytes(data)
        return self


@Language.factory(
    "elmore",
    assigns=["doc.tensor"],
    default_config={
        "model": catalogue.BUNDLED,
        "layers": "average",
        "mix": None,
        "precision": "exact",
        "device": "auto",
        "batch_tokens": 16384,
    },
)
def component(
    nlp: Language,
    name: str,
    model: str | list[str],
    layers: int | str,
    mix: dict[str, Any] | None,
    precision: Literal["exact", "fast"],
    device: str,
    batch_tokens: int,
) -> ElmoComponent:
    """Build the component.

    Args:
        nlp: The pipeline.
        name: Name of the component in it.
        model: What `elmore.load` takes: a name, a path, or a list of options and weights.
        layers: "average", "top", "cloze", "whitened" or a number.
        mix: Weights, gamma and layer_norm of a trained mix, instead of `layers`.
        precision: "exact" or "fast".
        device: "auto", "cpu" or "cuda".
        batch_tokens: Tokens per batch.

    Returns:
        The component. Its model is loaded by `nlp.initialize` or at the first Doc, since a saved
        pipeline is built before its weights are read, and the model named here may be gone.

    Raises:
        ConfigError: Layers, mix or `batch_tokens` are invalid.
    """
    chosen = parse_layers(layers) if isinstance(layers, str) else layers
    if chosen == "all":
        raise ConfigError("layers='all': a tensor has one vector per token; name one layer or mix")
    if mix is not None:
        chosen = _parse_mix(mix)
    embedder = DocEmbedder(model, device=device, precision=precision, batch_tokens=batch_tokens)
    return ElmoComponent(embedder, chosen, name=name, batch_tokens=batch_tokens)


def _parse_mix(numbers: dict[str, Any]) -> SavedMix:
    if "weights" not in numbers or not set(numbers) <= set(SavedMix._fields):
        raise ConfigError(
            f"mix: expected weights, and optionally gamma and layer_norm; found {numbers!r}"
        )
    layer_norm = numbers.get("layer_norm", False)
    try:
        weights = tuple(float(weight) for weight in numbers["weights"])
        gamma = float(numbers.get("gamma", 1.0))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"mix: weights and gamma must be numbers: {error}") from error
    if not isinstance(layer_norm, bool):
        raise ConfigError(f"mix: layer_norm must be true or false, found {layer_norm!r}")
    return SavedMix(weights, gamma, layer_norm)


def _batches(docs: Iterable[Doc], max_docs: int, max_tokens: int) -> Iterator[list[Doc]]:
    batch, num_tokens = [], 0
    for doc in docs:
        if batch and (len(batch) >= max_docs or num_tokens + len(doc) > max_tokens):
            yield batch
            batch, num_tokens = [], 0
        batch.append(doc)
        num_tokens += len(doc)
    if batch:
        yield batch


def vector(part: Part) -> Float[np.ndarray, " D"]:
    """Return the tensor row of a Token, or the mean over the words of a Span or Doc.

    Args:
        part: The Doc, Span or Token.
    """
    if isinstance(part, Token):
        return part.doc.tensor[part.i]
    rows = part.doc.tensor[part.start : part.end] if isinstance(part, Span) else part.tensor
    words = rows[rows.any(axis=1)]
    return words.mean(axis=0) if len(words) else np.zeros(rows.shape[1], np.float32)


def has_vector(part: Part) -> bool:
    """Return whether a Doc, Span or Token is more than whitespace.

    Args:
        part: The Doc, Span or Token.
    """
    return bool(vector(part).any())


def similarity(part: Part, other: Part) -> float:
    """Return the cosine of two vectors; 0 if one of them is zero.

    Args:
        part: A Doc, Span or Token.
        other: Another.

    Raises:
        DataError: The vectors differ in width.
    """
    first, second = part.vector, other.vector
    if first.shape != second.shape:
        raise DataError(
            f"vectors of width {first.size} and {second.size} cannot be compared; process both "
            "texts with the same pipeline"
        )
    return float(pooling.cosine(first[None], second[None])[0, 0])
