"""What trainings learn from: examples that were read, an embedder that was opened, its layers.

Trainings that differ in their seeds, or in how many of the examples they see, share one.
"""

import hashlib
import logging
import time
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from elmore.embed.jobs.layer_cache import CachedLayers
from elmore.errors import DataError
from elmore.tasks import timing
from elmore.tasks.data.encode import Reader
from elmore.tasks.embedding import spec
from elmore.tasks.task import Task
from elmore.text.files import expand
from elmore.train.distributed import DistEnv
from elmore.weights import checksums

_log = logging.getLogger(__name__)


class Layers(NamedTuple):
    """Of the two texts of a training."""

    train: CachedLayers | None
    dev: CachedLayers | None


class Part(NamedTuple):
    """Which of the examples a training sees: all of them, or a fraction that the seed draws."""

    fraction: float | None = None
    seed: int = 0

    def of(self, examples: Sequence[Any]) -> list[Any]:
        """Give that many examples: to the nearest whole number, one at least.

        With one seed, a smaller part lies within a larger one. The examples keep their order, so
        all of them are the examples as they are.
        """
        if self.fraction is None:
            return list(examples)
        shuffled = np.random.default_rng(self.seed).permutation(len(examples))
        count = max(1, round(self.fraction * len(examples)))
        return [examples[i] for i in sorted(shuffled[:count].tolist())]


class Lesson:
    """Training examples, held-out ones, and what `--embedder` names."""

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
        parts: Iterable[Part] = (Part(),),
    ) -> None:
        """Read and open everything; examples to be scored in the end are only looked over.

        `parts` are those of the trainings to come: no layers are computed for what none sees.
        """
        named = spec.parse(embedder)
        self._files = {"train": train, "dev": dev}
        self.task, self.dist_env, self.device = task, dist_env, device
        self._parts = frozenset(parts)
        self.examples = read(task, train)
        self.labels = task.labels(self.examples)
        self.held_out = read(task, dev, self.labels)
        if test is not None:
            read(task, test, self.labels)  # a slip of the pen shows now, not after the training
        self.sources = spec.opened(named, device=str(device))

    def seen(self, part: Part) -> list[Any]:
        """Give the examples of a training on a part."""
        return self.task.training(part.of(self.examples))

    @cached_property
    def sha256(self) -> dict[str, str]:
        """Return the sha256 of each data file."""
        read = {"train": self.examples, "dev": self.held_out}
        return {split: _sha256(path, read[split]) for split, path in self._files.items()}

    @cached_property
    def layers(self) -> Layers:
        """Have the layers of both texts on the disk; the first process brings them there."""
        if not self.dist_env.is_main:
            self.wait()
        begun = time.perf_counter()
        frozen = self.task.config.elmo.freeze
        reader = Reader(elmo=self.sources.elmo if frozen else None)
        seen = chain.from_iterable(map(self.seen, self._parts))
        both = Layers(
            *(
                reader.cached(s for example in some for s in self.task.sentences(example))
                for some in (seen, self.held_out)
            )
        )
        if self.dist_env.is_main:
            self.wait()
            timing.tell_layers(both, time.perf_counter() - begun)
        return both

    def wait(self) -> None:
        """Wait for the other processes."""
        if self.dist_env.world_size > 1:
            dist.barrier()


def read(task: Task, path: Path, labels: Sequence[str] | None = None) -> list[Any]:
    """Read the examples of a file: one at least, and with labels that are known, if these are."""
    examples = task.read(path)
    if not examples:
        raise DataError(f"{path}: no example in it; expected one at least")
    if labels is not None:
        _look_over_labels(task, examples, labels, path)
    return examples


def _look_over_labels(
    task: Task, examples: Sequence[Any], labels: Sequence[str], path: Path
) -> None:
    """Point out labels that cannot be found: as a slip, or as a rarity that costs some score."""
    known = set(labels)
    unknown = {
        number: label
        for number, example in enumerate(examples, start=1)
        for label in task.truth(example)
        if label not in known
    }
    if not unknown:
        return
    number, label = next(iter(unknown.items()))
    if task.closed_labels:
        shown = ", ".join(labels[:20]) + (", …" if len(labels) > 20 else "")
        raise DataError(
            f"{path}: example {number} has the label {label!r}, which no training example has; "
            f"expected {shown}"
        )
    _log.warning(
        "%s: %d of %d examples have labels that no training example has, as %r in example %d; "
        "these cannot be found",
        path,
        len(unknown),
        len(examples),
        label,
        number,
    )


def _sha256(path: Path, examples: Sequence[Any]) -> str:
    """Return the sha256 of a file, or one over the files that a pattern names."""
    files = [Path(name) for name in expand([str(path)])]
    if not all(file.is_file() for file in files):  # the bytes of a pipe have come and gone
        return digest(examples)
    found = [checksums.digest(file) for file in files]
    return found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest()


def digest(examples: Sequence[Any]) -> str:
    """Return the sha256 of examples as read: slow, and different once their class changes."""
    return hashlib.sha256(repr(examples).encode("utf-8", "backslashreplace")).hexdigest()
