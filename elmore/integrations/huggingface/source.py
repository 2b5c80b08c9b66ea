"""Load the elmore model that a transformers model or tokenizer is made from."""

from pathlib import Path

from elmore.embed.embedder import Embedder
from elmore.weights import pretrained
from elmore.weights.bundle import Bundle

Source = str | Path | Embedder | Bundle


def resolve_source(*sources: Source) -> Bundle:
    """Return a loaded model.

    Args:
        sources: What `elmore.load` takes, or a single `Embedder` or `Bundle`.

    Returns:
        The network, its alphabet and what belongs to them.

    Raises:
        ConfigError: There is no model of this name.
        WeightsError: The files are damaged, or not of a known format.
    """
    if len(sources) == 1 and isinstance(sources[0], Embedder):
        return sources[0].bundle
    if len(sources) == 1 and isinstance(sources[0], Bundle):
        return sources[0]
    return pretrained.load(*(str(source) for source in sources))
