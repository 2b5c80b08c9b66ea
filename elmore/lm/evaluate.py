"""Perplexity of a model on a prepared corpus, both given by name or folder."""

from collections.abc import Callable
from pathlib import Path

from elmore.corpus.shards import Split, open_corpus
from elmore.errors import ConfigError
from elmore.lm import perplexity
from elmore.lm.language_model import LanguageModel
from elmore.lm.perplexity import Perplexity
from elmore.lm.scoring import require_softmax
from elmore.train.distributed import init_distributed
from elmore.weights import pretrained


def evaluate(
    model: str | Path | None,
    shards: str | Path,
    *,
    reset_state: bool = True,
    split: Split | None = None,
    batch_size: int = 64,
    device: str = "auto",
    progress: Callable[[float, int], None] | None = None,
) -> Perplexity:
    """Return the full-softmax perplexity of a model on a prepared corpus.

    Args:
        model: A name from `elmore models`, a model folder or a run; None is the bundled model.
        shards: A folder written by `elmore prepare`.
        reset_state: Reset the recurrent state at each sentence; else carry it through the text.
        split: `train`, `valid` or `all`; by default `valid` if there is one, else `all`.
        batch_size: Number of parallel streams.
        device: `auto`, `cpu` or `cuda`.
        progress: Called with the fraction done and the number of tokens.

    Raises:
        DataError: The model has no softmax, or the corpus is damaged.
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size must be at least 1, found {batch_size}")
    corpus = open_corpus(shards)
    corpus.verify()
    bundle = pretrained.load(*([model] if model else []))
    vocabulary, softmax = require_softmax(bundle)
    if split is None:
        split = "valid" if corpus.index["splits"]["valid"]["shards"] else "all"
    tokens = corpus.split(split)
    with init_distributed(device) as (dist_env, own_device):
        network = LanguageModel(bundle.model, softmax.softmax).to(own_device).eval()
        encoder, cost = perplexity.build_encoders(
            corpus, network, bundle.alphabet, vocabulary, bundle.byte_counts
        )
        return perplexity.measure_perplexity(
            network,
            encoder,
            tokens,
            cost,
            reset_state=reset_state,
            batch_size=batch_size,
            dist_env=dist_env,
            progress=progress,
        )
