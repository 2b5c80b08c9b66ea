"""load: from the name or the files of a model to an Embedder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from elmore.embed.embedder import Embedder
from elmore.model.config import Precision
from elmore.text.tokenizers import Tokenizer, penn
from elmore.weights import pretrained


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
    cache_megabytes: float | None = None,
    progress: Callable[[int, int | None], Any] | None = None,
) -> Embedder:
    """Load a model, ready to embed.

    Args:
        *sources: Nothing (the bundled English model), a name that `elmore models` lists, an
            elmore folder, a zip, an ELMoForManyLangs folder, a torch state_dict of AllenNLP's Elmo,
            a checkpoint of bilm-tf, a module of TF-Hub, or options.json and weights.hdf5.
        vocabulary: Word list of a foreign model that reads words instead of characters, or of the
            softmax of a checkpoint.
        max_layer: Highest LSTM layer to load; the layers above it are dropped.
        progress: Called with the bytes downloaded so far, and with their total if it is known.
        device: As in `Embedder`.
        precision: As in `Embedder`.
        initial_state: As in `Embedder`.
        stateful: As in `Embedder`.
        tokenizer: As in `Embedder`.
        token_budget: As in `Embedder`.
        cache_megabytes: As in `Embedder`.

    Returns:
        The embedder.

    Raises:
        WeightsError: The files are damaged, or not of a known format.
        ConfigError: An argument is impossible, or a model is unknown.
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
        cache_megabytes=cache_megabytes,
    )
