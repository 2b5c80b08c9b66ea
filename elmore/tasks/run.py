"""Train, evaluate and predict: the same for every task."""

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from elmore import config
from elmore.embed.layer_cache import CachedLayers
from elmore.errors import ConfigError
from elmore.tasks import reading, solver, sources, storage
from elmore.tasks.solver import Solver
from elmore.tasks.sources import Sources
from elmore.tasks.task import Task, TaskConfig
from elmore.tasks.training import Training
from elmore.text.tokenizers import penn
from elmore.train import precision
from elmore.train.distributed import Ranks, device_of, started
from elmore.train.fit import Report, deterministic, fit
from elmore.train.runs import Run

_AT_ONCE = 256  # examples to predict at a time, where more may come

_log = logging.getLogger(__name__)


def train(
    kind: type[Task],
    recipe: TaskConfig,
    examples: Path,
    valid: Path,
    out: Path,
    *,
    embedder: str = "none",
    resume: bool = False,
    device: str = "auto",
) -> Iterator[Report]:
    """Train as the recipe says, and report; the best weights lie in `out / "best"`."""
    task = kind(recipe)
    with started(device) as (ranks, place):
        named = sources.parse(embedder)
        read, held_out = task.training(task.read(examples)), task.read(valid)
        opened = sources.opened(named, device=str(place))
        run = Run(out)
        described = {
            **config.as_dict(recipe),
            "task": kind.name,
            "embedder": {"specification": str(named), **opened.digests},
            "data": {"train": _digest(read), "dev": _digest(held_out)},
        }
        if ranks.first:
            run.begin(described, resume=resume)
        _wait(ranks)
        solved = _new(task, recipe, read, opened)
        settings, learner = recipe.train, solved.learner
        with deterministic(settings):
            numbers = precision.resolve(settings, place)
            learner.to(place, precision.dtype(numbers)).train()
        layers = [_layers(solved, some, ranks) for some in (read, held_out)]
        training = Training(solved, read, layers[0], held_out, layers[1], ranks)
        try:
            yield from fit(training, settings, run, device=place, ranks=ranks, resume=resume)
        except torch.OutOfMemoryError as error:
            raise ConfigError(
                f"batches of {recipe.batch_size} examples do not fit into the memory of the GPU "
                f"({str(error).split('.')[0]}); lower batch_size, and raise train.accumulate "
                "instead"
            ) from error


def evaluate(place: Path, data: Path, *, device: str = "auto") -> dict[str, float]:
    """Score a trained task on a file; one process is enough."""
    solved = _opened(place, device)
    examples = solved.task.read(data)
    layers = solved.reader.cached(solved.sentences(examples))
    return solved.task.score(examples, solved.predict(examples, layers))


class Prediction(NamedTuple):
    """What came of a text."""

    example: Any
    found: Any
    line: str
    """For a person."""
    data: dict[str, Any]
    """For a program."""


def predict(
    place: Path,
    texts: Iterable[str],
    *,
    tokenize: Callable[[str], list[str]] | None = None,
    device: str = "auto",
) -> Iterator[Prediction]:
    """Predict for texts, each an example, in their order; any number of them."""
    cut = tokenize or (lambda text: penn(text).words)
    solved = _opened(place, device)
    some: list[Any] = []
    for text in texts:
        some.append(solved.task.example(text, cut))
        if len(some) == _AT_ONCE:
            yield from _predicted(solved, some)
            some = []
    yield from _predicted(solved, some)


def _predicted(solved: Solver, examples: Sequence[Any]) -> Iterator[Prediction]:
    layers = solved.reader.computed(solved.sentences(examples))
    task = solved.task
    for example, found in zip(examples, solved.predict(examples, layers), strict=True):
        yield Prediction(example, found, task.show(example, found), task.as_json(example, found))


def _opened(place: Path, device: str) -> Solver:
    where = device_of(device)
    solved = storage.load(place, device=str(where))
    solved.learner.to(where)
    return solved


def _new(task: Task, recipe: TaskConfig, examples: Sequence[Any], opened: Sources) -> Solver:
    """Build the network of a task, with weights that the seed decides."""
    words = None
    if opened.vectors is None and opened.elmo is None:
        sentences = (sentence for example in examples for sentence in task.sentences(example))
        words = reading.known_words(sentences, min_count=recipe.words.min_count)
    torch.manual_seed(recipe.train.seed)
    return solver.build(task, recipe, task.labels(examples), words, opened)


def _layers(solved: Solver, examples: Sequence[Any], ranks: Ranks) -> CachedLayers | None:
    """Have the layers of some examples on the disk; the first process brings them there."""
    begun = time.perf_counter()
    if not ranks.first:
        _wait(ranks)
    layers = solved.reader.cached(solved.sentences(examples))
    if ranks.first:
        _wait(ranks)
    if layers is not None:
        _log.info("layers of %d sentences: %.1f s", len(layers), time.perf_counter() - begun)
    return layers


def _wait(ranks: Ranks) -> None:
    if ranks.size > 1:
        dist.barrier()


def _digest(examples: Sequence[Any]) -> str:
    """Know examples again by what was read."""
    return hashlib.sha256(repr(examples).encode("utf-8", "backslashreplace")).hexdigest()
