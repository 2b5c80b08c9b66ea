"""Tags from frozen vectors with one linear classifier per layer: parts of speech, chunks, names.

The classifier is that of `elmore probe pos`. Parts of speech are scored by accuracy, chunks and
names by F1 over spans, as conlleval counts them. The layer is the one whose classifier predicts
most tags of dev.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from elmore.embed.embedder import Embedder
from elmore.errors import DataError
from elmore.probe.estimates import Estimate, estimate_ratio
from elmore.probe.linear_probe import Examples, Splits, fit_classifier, layer_features
from elmore.probe.suite.scores import Progress, Score
from elmore.tasks.data.columns import TaggedSentence
from elmore.tasks.metrics.bio import extract_spans
from elmore.tasks.ner.data import read_conll
from elmore.tasks.pos.data import has_tags, read_conllu

_HELD_OUT = 10  # where there is no dev file, each tenth training sentence is dev

Counts = Callable[[Sequence[str], Sequence[str]], tuple[int, int]]
"""From the gold and predicted tags of a sentence, numerator and denominator of the score."""


class TaggingTask(NamedTuple):
    """One kind of tags on the sentences of a set."""

    part: str
    metric: str
    counts: Counts
    splits: Splits


def read_pos(folder: Path) -> list[TaggingTask]:
    """Read the CoNLL-U files of a treebank: the tags of its language, and the universal ones.

    Many treebanks have no tags of their own: then only the universal ones are read.

    Raises:
        DataError: A file is damaged, or some words have a tag of the language and others have none.
    """
    paths = _find_splits(folder)
    tasks = [TaggingTask("upos", "accuracy", _count_tags, _read_treebank(paths, "upos"))]
    if any(has_tags(path, column="xpos") for path in paths):
        own = TaggingTask("xpos", "accuracy", _count_tags, _read_treebank(paths, "xpos"))
        tasks.insert(0, own)
    return tasks


def _read_treebank(paths: Sequence[Path], column: Literal["xpos", "upos"]) -> Splits:
    return _split([read_conllu(path, column=column) for path in paths])


def read_spans(folder: Path) -> list[TaggingTask]:
    """Read column files with BIO tags in the last column: CoNLL-2000, CoNLL-2003, WNUT-17."""
    files = [read_conll(path) for path in _find_splits(folder)]
    return [TaggingTask("all", "f1", _count_spans, _split(files))]


def _find_splits(folder: Path) -> list[Path]:
    """Return the files for train, test, and dev if there is one, by their names."""
    paths: dict[str, list[Path]] = {"train": [], "test": [], "dev": []}
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        for split in _splits_of(path.name.lower()):
            paths[split].append(path)
    for split, matches in paths.items():
        if len(matches) > 1 or (split != "dev" and not matches):
            raise DataError(
                f"{folder}: expected one file with {split!r} in its name, found {len(matches)}"
            )
    return [path for matches in paths.values() for path in matches]


def _splits_of(name: str) -> Iterator[str]:
    if "train" in name:
        yield "train"
    elif any(word in name for word in ("dev", "valid", "testa")):  # eng.testa of CoNLL-2003
        yield "dev"
    elif "test" in name:
        yield "test"


def _split(files: Sequence[list[TaggedSentence]]) -> Splits:
    train, test, *dev = files
    if dev:
        return Splits(train, dev[0], test)
    return Splits(
        [sentence for number, sentence in enumerate(train) if number % _HELD_OUT],
        train[::_HELD_OUT],
        test,
    )


def _count_tags(gold: Sequence[str], predicted: Sequence[str]) -> tuple[int, int]:
    """Return the numbers of correct tags and of tags."""
    return sum(a == b for a, b in zip(gold, predicted, strict=True)), len(gold)


def _count_spans(gold: Sequence[str], predicted: Sequence[str]) -> tuple[int, int]:
    """Return twice the number of correct spans, and the numbers of gold and predicted ones."""
    first, second = (set(extract_spans(tags)) for tags in (gold, predicted))
    return 2 * len(first & second), len(first) + len(second)


def score_tags(
    elmo: Embedder, tasks: list[TaggingTask], seed: int, progress: Progress
) -> list[Score]:
    """Score each layer on each kind of tags; the sentences are embedded once."""
    num_tokens = sum(map(len, tasks[0].splits.tags()))
    layers = layer_features(tasks[0].splits, elmo, progress=lambda done, n: progress(done / 2, n))
    scores, num_fits = [], len(tasks) * len(layers)
    for task in tasks:
        fits = {}
        for layer, vectors in layers.items():
            examples = (Examples(*pair) for pair in zip(vectors, task.splits.tags(), strict=True))
            fits[layer] = fit_classifier(*examples, seed=seed, device=elmo.device)
            progress(0.5 + (len(scores) + len(fits)) / num_fits / 2, num_tokens)
        best = max(fits, key=lambda layer: fits[layer].dev)
        scores += [
            Score.from_estimate(
                _estimate(task, fit.predicted, seed),
                part=task.part,
                metric=task.metric,
                method=layer,
                chosen=layer == best,
            )
            for layer, fit in fits.items()
        ]
    return scores


def _estimate(task: TaggingTask, predicted: Sequence[str], seed: int) -> Estimate:
    """Return the score of the predicted tags; whole sentences are resampled."""
    tags = iter(predicted)
    counts = np.array(
        [
            task.counts(sentence.tags, list(islice(tags, len(sentence.tags))))
            for sentence in task.splits.test
        ]
    )
    return estimate_ratio(*counts.T, seed=seed)
