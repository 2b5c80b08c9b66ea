"""Continue training a model on another text, such as the text of a domain.

A model with a softmax keeps it, extended by the new words of the text. Published weights have none:
then a softmax over the words of the text is trained first, with the biLM frozen.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from elmore import config
from elmore.corpus.shards import Corpus
from elmore.lm.config import FinetuneConfig
from elmore.lm.language_model import LanguageModel
from elmore.lm.parents import derive_card, describe_parent, warn_of_unknown_licence
from elmore.lm.pretrain import open_run, open_verified_corpus, train_lm
from elmore.lm.scoring import check_softmax_file
from elmore.lm.trainable import LMTrainable
from elmore.model import softmax as softmaxes
from elmore.model.softmax import Softmax
from elmore.text.vocabulary import ELMO_MARKS, Vocabulary
from elmore.train.distributed import DistEnv, init_distributed
from elmore.train.fit import Report
from elmore.weights import catalogue, pretrained
from elmore.weights.bundle import Bundle

_log = logging.getLogger(__name__)


class PerplexityChange(NamedTuple):
    """Perplexity on the original vocabulary before and after; None without validation text."""

    before: float | None
    after: float | None
    num_words: int
    new_words: int


def finetune(
    sources: Sequence[str | Path],
    shards: Path,
    out: Path,
    recipe: FinetuneConfig,
    *,
    resume: bool = False,
    device: str = "auto",
) -> Iterator[Report | PerplexityChange]:
    """Fine-tune a model and yield reports; the last item is the perplexity before and after.

    Args:
        sources: The model, as for `elmore.load`.
        shards: A folder written by `elmore prepare`.
        out: The run folder; the best model is written to `out / "best"`.
        recipe: Training settings, from `elmore.lm.config.read_finetune_recipe`.
        resume: Continue the run in `out`.
        device: `auto`, `cpu` or `cuda`.
    """
    with contextlib.ExitStack() as stack:
        dist_env, own_device = stack.enter_context(init_distributed(device))
        corpus = open_verified_corpus(shards, dist_env)
        bundle = pretrained.load(*sources)
        check_softmax_file(bundle)
        parent, facts = describe_parent(bundle, sources), config.as_dict(recipe)
        saved_recipe = {
            **facts,
            "model": [str(source) for source in sources] or [catalogue.BUNDLED],
            "model_sha256": parent.sha256,
            "model_softmax_sha256": parent.softmax_sha256,
        }
        if dist_env.is_main:
            warn_of_unknown_licence(recipe.card)
        card = derive_card(recipe.card, corpus, facts, parent=parent, tuned=True)
        bundle = replace(bundle, card=card)
        needs_softmax = bundle.softmax is None
        if needs_softmax:
            bundle = _add_softmax(bundle, corpus, recipe)
        seed = recipe.softmax_train.seed if needs_softmax else recipe.train.seed
        start = _build_trainable(bundle, corpus, recipe, seed, dist_env)
        run = stack.enter_context(open_run(out, saved_recipe, corpus, dist_env, resume=resume))
        if needs_softmax:
            exists = resume and (out / "softmax" / "recipe.json").is_file()
            first = stack.enter_context(
                open_run(out / "softmax", saved_recipe, corpus, dist_env, resume=exists)
            )
            start.module.bilm.requires_grad_(requires_grad=False)
            _log.info(
                "the model has no softmax: training one over %d words first", len(start.vocabulary)
            )
            for report in train_lm(start, recipe.softmax_train, first, own_device, resume=resume):
                yield report
                if report.stop_reason.startswith("SIG"):
                    return
            bundle = _load_best(bundle, first.best)
            start = _build_trainable(bundle, corpus, recipe, recipe.train.seed, dist_env)
        num_words = len(bundle.vocabulary or ())
        before = _measure(start, own_device, None, "before the first update")
        bundle = extend_vocabulary(bundle, corpus)
        trainable = _build_trainable(bundle, corpus, recipe, recipe.train.seed, dist_env)
        for report in train_lm(trainable, recipe.train, run, own_device, resume=resume):
            yield report
            if report.stop_reason.startswith("SIG"):
                return
        best_bundle = _load_best(bundle, run.best)
        best = _build_trainable(best_bundle, corpus, recipe, recipe.train.seed, dist_env)
        unknown_ids = _unknown_group(trainable.vocabulary, num_words)
        after = _measure(best, own_device, unknown_ids, "of the best model")
        yield PerplexityChange(before, after, num_words, len(trainable.vocabulary) - num_words)


def _add_softmax(bundle: Bundle, corpus: Corpus, recipe: FinetuneConfig) -> Bundle:
    """Return the model with a new softmax over the words of the text."""
    torch.manual_seed(recipe.softmax_train.seed)
    vocabulary = corpus.vocabulary
    if bundle.config.words is not None and bundle.vocabulary is not None:
        vocabulary = bundle.vocabulary  # the model's word embeddings fix it
    softmax = softmaxes.build(recipe.softmax, len(vocabulary), bundle.config.lstm.output_dim)
    return replace(bundle, vocabulary=vocabulary, softmax=softmax, options=None)


def extend_vocabulary(bundle: Bundle, corpus: Corpus) -> Bundle:
    """Add the new words of a corpus to a softmax.

    Each new word starts with a share of the probability of `<UNK>`, in proportion to its count.
    """
    old, softmax = bundle.vocabulary, bundle.softmax
    if not isinstance(softmax, Softmax) or old is None or bundle.config.words is not None:
        _log.warning("the vocabulary of this model is fixed: new words count as unknown")
        return bundle
    new = [word for word in corpus.vocabulary.words if word not in old and word not in ELMO_MARKS]
    if not new:
        return bundle
    vocabulary = Vocabulary((*old.words, *new), old.marks)
    ids = corpus.word_ids(vocabulary)
    counts = np.bincount(ids, corpus.counts, len(vocabulary))
    group = _unknown_group(vocabulary, len(old))
    unknown_id = group[:1]
    group_counts = torch.from_numpy(counts)[group] + 1
    weight, bias = softmax.weight.detach().cpu(), softmax.bias.detach().cpu()
    extended = Softmax(softmax.config, len(vocabulary), weight.shape[1])
    with torch.no_grad():
        extended.weight[: len(old)], extended.bias[: len(old)] = weight, bias
        extended.weight[group] = weight[unknown_id]
        log_fractions = (group_counts / group_counts.sum()).log().to(bias.dtype)
        extended.bias[group] = bias[unknown_id] + log_fractions
    return replace(bundle, vocabulary=vocabulary, softmax=extended)


def _unknown_group(vocabulary: Vocabulary, num_words: int) -> torch.Tensor:
    """Return the ids that counted as `<UNK>` before: itself, then the words added to the first."""
    (unknown_id,) = vocabulary.ids([vocabulary.marks.unknown])
    return torch.tensor([int(unknown_id), *range(num_words, len(vocabulary))])


def _build_trainable(
    bundle: Bundle, corpus: Corpus, recipe: FinetuneConfig, seed: int, dist_env: DistEnv
) -> LMTrainable:
    assert bundle.softmax is not None
    assert bundle.vocabulary is not None
    return LMTrainable(
        LanguageModel(bundle.model.requires_grad_(), bundle.softmax).requires_grad_(),
        corpus,
        bundle.vocabulary,
        bundle.alphabet,
        recipe.stream,
        seed,
        dist_env,
        bundle.card,
        bundle.byte_counts,
    )


def _measure(
    trainable: LMTrainable, device: torch.device, merged_ids: torch.Tensor | None, which: str
) -> float | None:
    if not trainable.has_valid:
        return None
    _log.info("measuring the perplexity %s", which)
    trainable.module.to(device).eval()
    ids = None if merged_ids is None else merged_ids.to(device)
    return trainable.perplexity(ids).perplexity


def _load_best(bundle: Bundle, folder: Path) -> Bundle:
    """Return a bundle with the weights of a finished run."""
    best = pretrained.load(folder)
    return replace(bundle, model=best.model, softmax=best.softmax)
