"""Train, evaluate and predict: the same for every task."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from elmore import atomic
from elmore.errors import ConfigError, DataError
from elmore.tasks import checkpoint, identity, timing, trained_task
from elmore.tasks.data import encode
from elmore.tasks.data.datasets import Lesson, Part, read
from elmore.tasks.embedding.spec import Sources
from elmore.tasks.task import Task, TaskConfig
from elmore.tasks.trained_task import Solver
from elmore.tasks.training import Training
from elmore.train import precision
from elmore.train.distributed import init_distributed, select_device
from elmore.train.fit import Report, deterministic, fit
from elmore.train.runs import Run

_AT_ONCE, _TOKENS_AT_ONCE = 256, 16384  # to predict for at a time, where more may come


class Reports(Iterator[Report]):
    """The reports of a training, which goes on as they are followed and ends with `close`."""

    def __init__(self, reports: Generator[Report, None, None], opened: Sequence[Sources]) -> None:
        """Follow `reports`; `opened` holds the sources of the training as soon as they are open."""
        self._reports, self._opened = reports, opened
        self.last: Report | None = None

    @property
    def sources(self) -> Sources | None:
        """Return what it is trained with, once that is open, so that nobody reads it again."""
        return self._opened[0] if self._opened else None

    def __next__(self) -> Report:
        self.last = next(self._reports)
        return self.last

    def close(self) -> None:
        """Stop the training and let go of its run folder."""
        self._reports.close()


def train(
    kind: type[Task],
    recipe: TaskConfig,
    examples: Path,
    valid: Path,
    out: Path,
    *,
    test: Path | None = None,
    embedder: str | None = None,
    resume: bool = False,
    device: str = "auto",
) -> Reports:
    """Train as the recipe says, and report; the best weights lie in `out / "best"`.

    `test` is only looked over: what is wrong with it shows before the training. Without `embedder`,
    a resumed run keeps the one it has recorded, and a new one takes the model of the package.
    """

    # A list, since a generator that refers to its own `Reports` would outlive the last use of them.
    ready: list[Sources] = []

    def reported() -> Generator[Report, None, None]:
        with init_distributed(device) as (dist_env, place):
            chosen = identity.choose_embedder(embedder, out if resume else None)
            lesson = Lesson(
                kind(recipe), examples, valid, test=test, embedder=chosen, dist_env=dist_env,
                device=place,
            )  # fmt: skip
            ready.append(lesson.sources)
            yield from learn(lesson, recipe, out, resume=resume)

    return Reports(reported(), ready)


def learn(
    lesson: Lesson,
    recipe: TaskConfig,
    out: Path,
    *,
    fraction: float | None = None,
    resume: bool = False,
) -> Generator[Report, None, None]:
    """Train on a lesson, or on a fraction of its examples."""
    dist_env, place = lesson.dist_env, lesson.device
    examples = lesson.seen(Part(fraction, recipe.train.seed))
    with Run(out) as run:
        if dist_env.is_main:
            recorded = out / "recipe.json" if resume else None
            described = identity.describe(
                lesson, recipe, examples, fraction=fraction, recorded=recorded
            )
            run.create_or_resume(described, resume=resume)
        lesson.wait()
        solved = _new(lesson, recipe, examples)
        settings, learner = recipe.train, solved.learner
        with deterministic(settings):
            numbers = precision.resolve(settings, place)
            learner.to(place, precision.weight_dtype(numbers)).train()
        layers = lesson.layers
        training = Training(solved, examples, layers.train, lesson.held_out, layers.dev, dist_env)
        epoch = training.batches_per_epoch / settings.grad_accum_steps
        try:
            reports = fit(training, settings, run, device=place, dist_env=dist_env, resume=resume)
            yield from timing.timed(reports, layers, epoch) if dist_env.is_main else reports
        except torch.OutOfMemoryError as error:
            raise ConfigError(
                f"batches of {recipe.batch_size} examples do not fit into the memory of the GPU "
                f"({str(error).split('.')[0]}); lower batch_size, and raise train.grad_accum_steps "
                "instead"
            ) from error


def evaluate(
    place: Path,
    data: Path,
    *,
    device: str = "auto",
    keep: bool = False,
    predictions: Path | None = None,
    embedder: str | None = None,
) -> dict[str, float]:
    """Score a trained task on a file; one process is enough.

    Layers of a biLM that are not in the cache are computed for the one time, or kept there for
    other times. `predictions` is a file to write, in the standard format of the task. `embedder`
    is the path of the word vectors or biLM used in training, if moved.
    """
    if predictions is not None:
        _refuse_place(predictions, data)
    solved = opened(place, device, embedder=embedder)
    return scored(solved, data, keep=keep, predictions=predictions)


def scored(
    solved: Solver, data: Path, *, keep: bool = False, predictions: Path | None = None
) -> dict[str, float]:
    """Score a solver that is open."""
    task = solved.task
    examples = read(task, data, solved.labels)
    found = list(_found(solved, examples, keep=keep))
    if predictions is not None:
        lines = (f"{line}\n" for line in task.written(examples, found, predictions.suffix))
        atomic.write(predictions, "".join(lines).encode("utf-8", "replace"))
    return task.score(examples, found)


def _found(solved: Solver, examples: Sequence[Any], *, keep: bool) -> Iterator[Any]:
    sentences = solved.sentences(examples)
    layers = solved.reader.cached(sentences) if keep else solved.reader.found(sentences)
    if layers is not None or solved.reader.elmo is None:
        yield from solved.predict(examples, layers)
        return
    for some in _windows(solved, examples):
        yield from solved.predict(some, solved.reader.computed(solved.sentences(some)))


def _windows(solved: Solver, examples: Iterable[Any]) -> Iterator[list[Any]]:
    """Give examples in lists whose layers fit into memory."""
    some: list[Any] = []
    num_tokens = 0
    for example in examples:
        some.append(example)
        num_tokens += sum(map(len, solved.task.sentences(example)))
        if len(some) >= _AT_ONCE or num_tokens >= _TOKENS_AT_ONCE:
            yield some
            some, num_tokens = [], 0
    if some:
        yield some


def _refuse_place(predictions: Path, data: Path) -> None:
    """See that a file of predictions can be written, before there are any."""
    if predictions.is_dir() or not predictions.parent.is_dir():
        raise DataError(f"{predictions}: expected the name of a file in a folder that is there")
    if predictions.exists() and data.exists() and predictions.samefile(data):
        raise DataError(f"{predictions}: these are the examples themselves; pass another name")


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
    tokenized: bool = False,
    device: str = "auto",
    embedder: str | None = None,
) -> Iterator[Prediction]:
    """Predict for texts, each an example, in their order; any number of them.

    They are split into tokens as the task splits the texts of files, or, `tokenized`, on spaces.
    `embedder` is the path of the word vectors or biLM used in training, if moved.
    """
    counted = ((f"text {number}", text) for number, text in enumerate(texts, start=1))
    solved = opened(place, device, embedder=embedder)
    yield from predicted(solved, counted, tokenized=tokenized)


def predicted(
    solved: Solver,
    texts: Iterable[tuple[str, str]],
    *,
    tokenized: bool = False,
) -> Iterator[Prediction]:
    """Predict with a solver that is open, for texts with their place, for messages."""
    task = solved.task
    asked = (_example(task, place, text, tokenized) for place, text in texts)
    for some in _windows(solved, asked):
        layers = solved.reader.computed(solved.sentences(some))
        for example, found in zip(some, solved.predict(some, layers), strict=True):
            yield Prediction(
                example, found, task.show(example, found), task.as_json(example, found)
            )


def _example(task: Task, place: str, text: str, tokenized: bool) -> Any:  # noqa: ANN401
    try:
        return task.example(text, tokenized=tokenized)
    except DataError as error:
        raise DataError(f"{place}: {error}") from error


def opened(
    place: Path,
    device: str = "auto",
    *,
    embedder: str | None = None,
    ready: Sources | None = None,
) -> Solver:
    """Open a solver on a device.

    `embedder` is the path of the word vectors or biLM used in training, if moved; `ready` is open
    already, and used if it is the same.
    """
    where = select_device(device)
    solved = checkpoint.load(place, device=str(where), embedder=embedder, ready=ready)
    solved.learner.to(where)
    return solved


def _new(lesson: Lesson, recipe: TaskConfig, examples: Sequence[Any]) -> Solver:
    """Build the network of a task, with weights that the seed decides."""
    task, words = type(lesson.task)(recipe), None
    if lesson.sources.vectors is None and lesson.sources.elmo is None:
        sentences = (sentence for example in examples for sentence in task.sentences(example))
        words = encode.known_words(sentences, min_count=recipe.words.min_count)
    torch.manual_seed(recipe.train.seed)
    return trained_task.build(task, recipe, lesson.labels, words, lesson.sources)
