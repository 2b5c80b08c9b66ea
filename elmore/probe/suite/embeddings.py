"""Vectors of texts in every layer; each distinct text is embedded once.

Shapes: L layers and their average (the last row), T tokens, D width.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from jaxtyping import Float

from elmore.embed.embedder import Embedder
from elmore.embed.outputs import EmbeddedText
from elmore.probe.suite.scores import Progress

Tokens = tuple[str, ...]


def layer_names(elmo: Embedder) -> list[str]:
    """Return the names of the rows of `embed_layers`."""
    return [*map(str, range(elmo.num_layers)), "average"]


def embed_layers(
    elmo: Embedder, texts: Iterable[Tokens], progress: Progress | None = None
) -> Iterator[tuple[Tokens, Float[np.ndarray, "L T D"]]]:
    """Yield each distinct text with its vectors, as they are computed."""
    distinct = list(dict.fromkeys(texts))
    results: Iterator[EmbeddedText] = elmo.stream(map(list, distinct), layers="all")
    for number, (text, embedded) in enumerate(zip(distinct, results, strict=True), start=1):
        vectors = embedded.vectors
        yield text, np.concatenate([vectors, vectors.mean(axis=0, keepdims=True)])
        if progress:
            progress(number / len(distinct), number)
