"""`nlp.add_pipe("elmore")`: contextual vectors for spaCy's own tokens.

The component fills `Doc.tensor`, one row for each token, and answers `vector`, `has_vector` and
`similarity` of Docs, Spans and Tokens from it. spaCy finds it, and the layer of `spacy_tok2vec`, by
the entry points of this package: nothing has to be imported.

Shapes: T tokens of a Doc, D width.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from elmore.errors import ConfigError, DataError, MissingPackageError

try:
    import spacy  # noqa: F401 -- for the sentence below
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
from elmore.embed.outputs import LayerChoice, parse_layers
from elmore.integrations.spacy_reader import DocReader
from elmore.model.mix import SavedMix
from elmore.weights import catalogue

Part = Doc | Span | Token
"""What spaCy gives vectors to."""


class ElmoComponent(Pipe):
    """Vectors for the tokens of a Doc, in context; whitespace has none, and zeros in the tensor."""

    def __init__(
        self, reader: DocReader, layers: LayerChoice, *, name: str, batch_tokens: int
    ) -> None:
        self.name = name
        self.reader = reader
        self.layers = layers
        self.batch_tokens = batch_tokens

    def __call__(self, doc: Doc) -> Doc:
        """Fill the tensor of one Doc."""
        self._fill([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 1000) -> Iterator[Doc]:
        """Fill the tensors of many: up to `batch_size` Docs at a time, or `batch_tokens` tokens."""
        handle = self.get_error_handler()
        for docs in _batches(stream, batch_size, self.batch_tokens):
            try:
                self._fill(docs)
            except Exception as error:  # whose handler decides
                handle(self.name, self, docs, error)
            else:
                yield from docs

    def _fill(self, docs: list[Doc]) -> None:
        for doc, vectors in zip(docs, self.reader.read(docs, self.layers), strict=True):
            doc.tensor = vectors
            # No norms: spaCy has them from the vectors, and mistakes one hook of a Span.
            for hooks in (doc.user_hooks, doc.user_span_hooks, doc.user_token_hooks):
                hooks.update(vector=vector, has_vector=has_vector, similarity=similarity)

    def initialize(
        self, get_examples: Callable[[], Iterable[Any]], *, nlp: Language | None = None
    ) -> None:
        """Load the model now, so that a wrong name is told before training begins."""
        _ = self.reader.embedder

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = SimpleFrozenList()) -> None:
        """Save the weights, unless they are those of the package or `exclude` names "model"."""
        if "model" not in exclude:
            self.reader.to_disk(Path(path))

    def from_disk(
        self, path: str | Path, *, exclude: Iterable[str] = SimpleFrozenList()
    ) -> "ElmoComponent":
        """Take the weights that were saved."""
        if "model" not in exclude:
            self.reader.from_disk(Path(path))
        return self

    def to_bytes(self, *, exclude: Iterable[str] = SimpleFrozenList()) -> bytes:
        """Do as `to_disk`, into bytes."""
        return b"" if "model" in exclude else self.reader.to_bytes()

    def from_bytes(
        self, data: bytes, *, exclude: Iterable[str] = SimpleFrozenList()
    ) -> "ElmoComponent":
        """Take the weights that `to_bytes` gave."""
        if data and "model" not in exclude:
            self.reader.from_bytes(data)
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
    """Make the component.

    `model` is what `elmore.load` takes: a name, a path, or a list of options and weights. `mix`,
    where it is given, takes the place of `layers`: weights, gamma and layer_norm of a trained mix.
    """
    chosen = parse_layers(layers) if isinstance(layers, str) else layers
    if chosen == "all":
        raise ConfigError("layers='all': a tensor has one vector per token; name one layer or mix")
    if mix is not None:
        chosen = _mix(mix)
    reader = DocReader(model, device=device, precision=precision, batch_tokens=batch_tokens)
    return ElmoComponent(reader, chosen, name=name, batch_tokens=batch_tokens)


def _mix(numbers: dict[str, Any]) -> SavedMix:
    if "weights" not in numbers or not set(numbers) <= set(SavedMix._fields):
        raise ConfigError(
            f"mix: expected weights, and if need be gamma and layer_norm; found {numbers!r}"
        )
    weights = tuple(float(weight) for weight in numbers["weights"])
    return SavedMix(weights, numbers.get("gamma", 1.0), numbers.get("layer_norm", False))


def _batches(docs: Iterable[Doc], most_docs: int, most_tokens: int) -> Iterator[list[Doc]]:
    batch, held = [], 0
    for doc in docs:
        if batch and (len(batch) >= most_docs or held + len(doc) > most_tokens):
            yield batch
            batch, held = [], 0
        batch.append(doc)
        held += len(doc)
    if batch:
        yield batch


def vector(part: Part) -> Float[np.ndarray, " D"]:
    """Give a token's row of the tensor, or the mean over the words of a Span or Doc."""
    if isinstance(part, Token):
        return part.doc.tensor[part.i]
    rows = part.doc.tensor[part.start : part.end] if isinstance(part, Span) else part.tensor
    words = rows[rows.any(axis=1)]
    return words.mean(axis=0) if len(words) else np.zeros(rows.shape[1], np.float32)


def has_vector(part: Part) -> bool:
    """Tell whether there is anything but whitespace in it."""
    return bool(vector(part).any())


def similarity(part: Part, other: Part) -> float:
    """Give the cosine of two vectors; 0 where there is nothing to compare."""
    first, second = part.vector, other.vector
    if first.shape != second.shape:
        raise DataError(
            f"vectors of width {first.size} and {second.size} cannot be compared; send both texts "
            "through the same pipeline"
        )
    return float(pooling.cosine(first[None], second[None])[0, 0])
