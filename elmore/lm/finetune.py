"""Carry on with a model on another text: a domain, a task's own sentences.

A model with a softmax keeps it, and gets the new words of the text beside its own. Published
weights come without: then a softmax over the words of the text is learned first, alone.
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
from elmore.lm.pretrain import begun, checked, trained
from elmore.lm.training import Training
from elmore.model import softmax as softmaxes
from elmore.model.softmax import Softmax
from elmore.text.vocabulary import ELMO_MARKS, Vocabulary
from elmore.train.distributed import DistEnv, init_distributed
from elmore.train.fit import Report
from elmore.weights import pretrained
from elmore.weights.bundle import Bundle

_log = logging.getLogger(__name__)


class Measured(NamedTuple):
    """What came of it, on the words the model began with; None without validation text."""

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
) -> Iterator[Report | Measured]:
    """Train on, and report; last comes the perplexity before and after."""
    with contextlib.ExitStack() as opened:
        dist_env, place = opened.enter_context(init_distributed(device))
        corpus = checked(shards, dist_env)
        bundle = pretrained.load(*sources)
        described = {**config.as_dict(recipe), "model": [str(source) for source in sources]}
        fresh = bundle.softmax is None
        if fresh:
            bundle = _with_softmax(bundle, corpus, recipe)
        seed = recipe.softmax_train.seed if fresh else recipe.train.seed
        start = _training(bundle, corpus, recipe, seed, dist_env)
        run = opened.enter_context(begun(out, described, corpus, dist_env, resume=resume))
        if fresh:
            there = resume and (out / "softmax" / "recipe.json").is_file()
            alone = begun(out / "softmax", described, corpus, dist_env, resume=there)
            opened.enter_context(alone)
            start.module.bilm.requires_grad_(requires_grad=False)
            _log.info("no softmax: one over %d words is learned first", len(start.vocabulary))
            for report in trained(
                start, recipe.softmax_train, alone, place, dist_env, resume=resume
            ):
                yield report
                if report.stop_reason.startswith("SIG"):
                    return
            bundle = _best(bundle, alone.best)
            start = _training(bundle, corpus, recipe, recipe.train.seed, dist_env)
        num_words = len(bundle.vocabulary or ())
        before = _measured(start, place, None, "before the first update")
        bundle = extended(bundle, corpus)
        training = _training(bundle, corpus, recipe, recipe.train.seed, dist_env)
        for report in trained(training, recipe.train, run, place, dist_env, resume=resume):
            yield report
            if report.stop_reason.startswith("SIG"):
                return
        best = _training(_best(bundle, run.best), corpus, recipe, recipe.train.seed, dist_env)
        after = _measured(best, place, _merged(training.vocabulary, num_words), "of the best model")
        yield Measured(before, after, num_words, len(training.vocabulary) - num_words)


def _with_softmax(bundle: Bundle, corpus: Corpus, recipe: FinetuneConfig) -> Bundle:
    """Give a model a new softmax over the words of the text, or over those of its own table."""
    torch.manual_seed(recipe.softmax_train.seed)
    vocabulary = corpus.vocabulary
    if bundle.config.words is not None and bundle.vocabulary is not None:
        vocabulary = bundle.vocabulary  # it looks words up in a table, and that stays
    softmax = softmaxes.build(recipe.softmax, len(vocabulary), bundle.config.lstm.output_dim)
    return replace(bundle, vocabulary=vocabulary, softmax=softmax, options=None)


def extended(bundle: Bundle, corpus: Corpus) -> Bundle:
    """Add the words of a text to a softmax: each there as its share of `<UNK>`, by its count."""
    old, softmax = bundle.vocabulary, bundle.softmax
    if not isinstance(softmax, Softmax) or old is None or bundle.config.words is not None:
        _log.warning("this model's words are fixed: new ones of the text count as unknown")
        return bundle
    new = [word for word in corpus.vocabulary.words if word not in old and word not in ELMO_MARKS]
    if not new:
        return bundle
    vocabulary = Vocabulary((*old.words, *new), old.marks)
    ids = corpus.word_ids(vocabulary)
    counts = np.bincount(ids, corpus.counts, len(vocabulary))
    (unknown,) = old.ids([old.marks.unknown])
    group = torch.tensor([int(unknown), *range(len(old), len(vocabulary))])
    shares = torch.from_numpy(counts)[group] + 1
    weight, bias = softmax.weight.detach().cpu(), softmax.bias.detach().cpu()
    bigger = Softmax(softmax.config, len(vocabulary), weight.shape[1])
    with torch.no_grad():
        bigger.weight[: len(old)], bigger.bias[: len(old)] = weight, bias
        bigger.weight[group] = weight[unknown]
        bigger.bias[group] = bias[unknown] + (shares / shares.sum()).log().to(bias.dtype)
    return replace(bundle, vocabulary=vocabulary, softmax=bigger)


def _merged(vocabulary: Vocabulary, num_words: int) -> torch.Tensor:
    """Give the words that counted as `<UNK>` before: itself, and those that are new."""
    unknown = int(vocabulary.ids([vocabulary.marks.unknown])[0])
    return torch.tensor([unknown, *range(num_words, len(vocabulary))])


def _training(
    bundle: Bundle, corpus: Corpus, recipe: FinetuneConfig, seed: int, dist_env: DistEnv
) -> Training:
    assert bundle.softmax is not None
    assert bundle.vocabulary is not None
    card = bundle.card
    described = {
        "recipe": config.as_dict(recipe),
        "from": card.training or card.name or card.source,
    }
    return Training(
        LanguageModel(bundle.model, bundle.softmax).requires_grad_(),
        corpus,
        bundle.vocabulary,
        bundle.alphabet,
        recipe.stream,
        seed,
        dist_env,
        replace(card, name="", training=described),  # another model now, named like its run
        bundle.byte_counts,
    )


def _measured(
    training: Training, device: torch.device, merged: torch.Tensor | None, which: str
) -> float | None:
    if not training.has_valid:
        return None
    _log.info("measuring the perplexity %s", which)
    training.module.to(device).eval()
    words = None if merged is None else merged.to(device)
    return training.perplexity(words).perplexity


def _best(bundle: Bundle, folder: Path) -> Bundle:
    """Take the weights of a finished run into a bundle of the same shape."""
    found = pretrained.load(folder)
    return replace(bundle, model=found.model, softmax=found.softmax)
