"""The perplexity of a model on a prepared text, both named by their folders."""

from collections.abc import Callable
from pathlib import Path

from elmore.corpus.shards import Split, open_corpus
from elmore.errors import ConfigError
from elmore.lm import perplexity
from elmore.lm.language_model import LanguageModel
from elmore.lm.perplexity import Perplexity, State
from elmore.lm.scoring import language_model
from elmore.train.distributed import init_distributed
from elmore.weights import pretrained


def evaluate(
    model: str | Path,
    shards: str | Path,
    *,
    state: State = "sentence",
    split: Split | None = None,
    rows: int = 64,
    device: str = "auto",
    progress: Callable[[float, int], None] | None = None,
) -> Perplexity:
    """Measure by the full softmax; without a split, on the validation text if there is one."""
    if rows < 1:
        raise ConfigError(f"rows must be at least 1, found {rows}")
    corpus = open_corpus(shards)
    corpus.verify()
    bundle = pretrained.load(model)
    vocabulary, softmax = language_model(bundle)
    if split is None:
        split = "valid" if corpus.index["splits"]["valid"]["shards"] else "all"
    tokens = corpus.split(split)
    with init_distributed(device) as (dist_env, place):
        network = LanguageModel(bundle.model, softmax).to(place).eval()
        batches, spelling = perplexity.prepared(
            corpus, network, bundle.alphabet, vocabulary, bundle.byte_counts
        )
        return perplexity.measure(
            network,
            batches,
            tokens,
            spelling,
            state=state,
            rows=rows,
            dist_env=dist_env,
            progress=progress,
        )
