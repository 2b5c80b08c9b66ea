"""The data of a training: examples, label set, embedders, cached biLM layers.

Runs of a sweep, which differ in seed and in how many examples they see, share one `TaskDatasets`.
"""

import hashlib
import logging
import re
import time
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from elmore.embed.jobs import layer_cache
from elmore.embed.jobs.layer_cache import CachedLayers
from elmore.errors import DataError
from elmore.tasks.embedding.spec import open_embedders, parse_spec
from elmore.tasks.task import Task
from elmore.text.files import expand_patterns
from elmore.train.distributed import DistEnv
from elmore.weights import checksums

# Runs of earlier versions recorded the hash of examples whose classes had these names.
_EARLIER_NAMES = {
    "TaggedSentence": "Tagged",
    "SentimentExample": "Rated",
    "SentencePair": "Pair",
    "SRLExample": "Framed",
    "TextWithOffsets": "Placed",
}
_CLASS_NAME = re.compile(rf"\b({'|'.join(_EARLIER_NAMES)})\(")

_log = logging.getLogger(__name__)


class LayerCaches(NamedTuple):
    """Cached biLM layers of the train and dev sentences (None without a frozen biLM)."""

    train: CachedLayers | None
    dev: CachedLayers | None

    @property
    def seconds(self) -> float:
        """Time that the biLM took for what was not on disk."""
        return sum(cache.seconds or 0.0 for cache in self if cache is not None)


class Subset(NamedTuple):
    """A random fraction of the training examples; all of them if `fraction` is None."""

    fraction: float | None = None
    seed: int = 0

    def of(self, examples: Sequence[Any]) -> list[Any]:
        """Return the examples of the subset, at least one, in their order.

        With the same seed, a smaller subset is part of a larger one.
        """
        if self.fraction is None:
            return list(examples)
        shuffled = np.random.default_rng(self.seed).permutation(len(examples))
        count = max(1, round(self.fraction * len(examples)))
        return [examples[i] for i in sorted(shuffled[:count].tolist())]


class TaskDatasets:
    """Training and dev examples, and the embedders that `--embedder` names."""

    def __init__(
        self,
        task: Task,
        train: Path,
        dev: Path,
        *,
        embedder: str,
        dist_env: DistEnv,
        device: torch.device,
        test: Path | None = None,
        subsets: Iterable[Subset] = (Subset(),),
    ) -> None:
        """Read the examples and open the embedders.

        Args:
            task: the task, with its recipe.
            train: training examples; their labels are the label set.
            dev: examples to choose the best weights by.
            embedder: an embedder spec.
            dist_env: the processes that train together.
            device: of the biLM.
            test: examples to be scored later; they are read now to find errors before training.
            subsets: those that will be trained on; other examples need no biLM layers.
        """
        spec = parse_spec(embedder)
        self._files = {"train": train, "dev": dev}
        self.task, self.dist_env, self.device = task, dist_env, device
        self._subsets = frozenset(subsets)
        self.train = read_examples(task, train)
        self.labels = task.collect_labels(self.train)
        self.dev = read_examples(task, dev, self.labels)
        if test is not None:
            read_examples(task, test, self.labels)
        self.embedders = open_embedders(spec, device=str(device))

    def training_examples(self, subset: Subset) -> list[Any]:
        """Return the examples of a training on a subset."""
        return self.task.training_examples(subset.of(self.train))

    @cached_property
    def sha256(self) -> dict[str, str]:
        """The sha256 of each data file."""
        examples = {"train": self.train, "dev": self.dev}
        return {split: _hash_file(path, examples[split]) for split, path in self._files.items()}

    @cached_property
    def layers(self) -> LayerCaches:
        """The biLM layers on disk; the main process computes what is missing."""
        elmo = self.embedders.elmo
        if elmo is None or not self.task.config.elmo.freeze:
            return LayerCaches(None, None)
        if not self.dist_env.is_main:
            self.wait()
        started = time.perf_counter()
        train = chain.from_iterable(map(self.training_examples, self._subsets))
        caches = LayerCaches(
            *(
                layer_cache.load_or_compute(
                    elmo, (s for example in examples for s in self.task.sentences(example))
                )
                for examples in (train, self.dev)
            )
        )
        if self.dist_env.is_main:
            self.wait()
            _log_layer_cache(caches, time.perf_counter() - started)
        return caches

    def wait(self) -> None:
        """Wait for the other processes."""
        if self.dist_env.world_size > 1:
            dist.barrier()


def _log_layer_cache(caches: LayerCaches, seconds: float) -> None:
    used = [cache for cache in caches if cache is not None]
    num_computed = sum(cache.seconds is not None for cache in used)
    how = "computed" if num_computed == len(used) else "computed in part"
    how = how if num_computed else "found in the cache"
    size = sum(cache.num_bytes for cache in used) / 1e6
    number = f"{sum(map(len, used)):,}"
    _log.info("layers of %s sentences: %s, %.1f s, %.0f MB", number, how, seconds, size)


def read_examples(task: Task, path: Path, labels: Sequence[str] | None = None) -> list[Any]:
    """Read the examples of a file and check their labels against a label set.

    Raises:
        DataError: there is no example, or, with a closed label set, an unknown label.
    """
    examples = task.read_examples(path)
    if not examples:
        raise DataError(f"{path}: no examples found, expected at least one")
    if labels is not None:
        _check_labels(task, examples, labels, path)
    return examples


def _check_labels(task: Task, examples: Sequence[Any], labels: Sequence[str], path: Path) -> None:
    """Report labels that cannot be predicted: an error, or a warning if the set is open."""
    known = set(labels)
    unknown = {
        number: label
        for number, example in enumerate(examples, start=1)
        for label in task.gold_labels(example)
        if label not in known
    }
    if not unknown:
        return
    number, label = next(iter(unknown.items()))
    if task.closed_label_set:
        expected = ", ".join(labels[:20]) + (", …" if len(labels) > 20 else "")
        raise DataError(
            f"{path}: example {number} has the label {label!r}, which no training example has; "
            f"expected {expected}"
        )
    _log.warning(
        "%s: %d of %d examples have labels that no training example has, such as %r in example "
        "%d; these cannot be predicted",
        path,
        len(unknown),
        len(examples),
        label,
        number,
    )


def _hash_file(path: Path, examples: Sequence[Any]) -> str:
    """Return the sha256 of a file, or one over all files that a pattern matches."""
    files = [Path(name) for name in expand_patterns([str(path)])]
    if not all(file.is_file() for file in files):  # a pipe cannot be read again
        return hash_examples(examples)
    digests = [checksums.file_sha256(file) for file in files]
    return (
        digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    )


def hash_examples(examples: Sequence[Any]) -> str:
    """Return the sha256 of parsed examples, the same as when their classes had earlier names."""
    text = _CLASS_NAME.sub(lambda match: f"{_EARLIER_NAMES[match[1]]}(", repr(examples))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
