"""Train a task.

    trained = train(NER, recipe, Path("train.txt"), Path("dev.txt"), Path("run"))
    trained.scores                      # on the dev examples
    trained.evaluate(Path("test.txt"))

The best weights are in `run/best`, a folder that `checkpoint.load_task` opens.
"""

import logging
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from elmore import config
from elmore.embed.jobs.layer_cache import CachedLayers
from elmore.errors import ConfigError, ElmoreError
from elmore.tasks import DEFAULT_EMBEDDER, checkpoint, trained_task
from elmore.tasks.data import batches
from elmore.tasks.data.datasets import Subset, TaskDatasets, hash_examples
from elmore.tasks.data.encode import build_vocabulary
from elmore.tasks.results import TEST_RESULTS
from elmore.tasks.task import Task, TaskConfig
from elmore.tasks.trained_task import TEST_COUNTS, Batch, TaskNetwork, TrainedTask
from elmore.train import precision
from elmore.train.distributed import init_distributed
from elmore.train.fit import Report, deterministic, fit
from elmore.train.runs import Run

OnReport = Callable[[Report], None]

_log = logging.getLogger(__name__)


class TrainingStoppedError(ElmoreError):
    """A signal stopped the training; the run was saved and can be resumed."""


def train(
    task_class: type[Task],
    recipe: TaskConfig,
    train: Path,
    dev: Path,
    out: Path,
    *,
    test: Path | None = None,
    embedder: str | None = None,
    resume: bool = False,
    device: str = "auto",
    on_report: OnReport | None = None,
) -> TrainedTask:
    """Train a task and return it with the weights that scored best on the dev examples.

    Args:
        task_class: the task, from `registry.find_task`.
        recipe: its settings, from `registry.load_recipe`.
        train: training examples.
        dev: examples to choose the best weights by.
        out: the run folder.
        test: examples to be scored later; they are read first, to find errors before training.
        embedder: `none`, `glove:FILE`, `elmo:MODEL` or `glove:FILE+elmo:MODEL`. The default is the
            recorded one when a run is resumed, else the bundled model.
        resume: continue an unfinished run. A finished one is returned as it is.
        device: `auto`, `cpu` or `cuda`.
        on_report: called with each progress report. An exception that it raises ends the training.

    Raises:
        ConfigError: recipe or embedder do not fit together, or not with the run to resume.
        DataError: examples cannot be read, or the run folder is in use.
        TrainingStoppedError: SIGINT or SIGTERM arrived; the run was saved.
    """
    with init_distributed(device) as (dist_env, local_device):
        datasets = TaskDatasets(
            task_class(recipe),
            train,
            dev,
            test=test,
            embedder=choose_embedder(embedder, out if resume else None),
            dist_env=dist_env,
            device=local_device,
        )
        return train_on(datasets, recipe, out, resume=resume, on_report=on_report)


def train_on(
    datasets: TaskDatasets,
    recipe: TaskConfig,
    out: Path,
    *,
    fraction: float | None = None,
    resume: bool = False,
    on_report: OnReport | None = None,
) -> TrainedTask:
    """Train on data that was read already, or on a fraction of its training examples."""
    dist_env, device = datasets.dist_env, datasets.device
    examples = datasets.training_examples(Subset(fraction, recipe.train.seed))
    with Run(out) as run:
        if dist_env.is_main:
            recipe_path = out / "recipe.json" if resume else None
            description = _describe_run(datasets, recipe, examples, fraction, recipe_path)
            run.create_or_resume(description, resume=resume)
        datasets.wait()
        training = new_task(datasets, recipe, examples)
        with deterministic(recipe.train):
            dtype = precision.weight_dtype(precision.resolve(recipe.train, device))
            training.network.to(device, dtype).train()
        trainable = TaskTrainable(training, examples, datasets)
        try:
            reports = fit(
                trainable, recipe.train, run, device=device, dist_env=dist_env, resume=resume
            )
            with closing(cast("Generator[Report]", reports)):
                last = _follow(reports, on_report, trainable, datasets)
        except torch.OutOfMemoryError as error:
            raise ConfigError(
                f"batches of {recipe.batch_size} examples do not fit into the memory of the GPU "
                f"({str(error).split('.')[0]}); lower batch_size, and raise train.grad_accum_steps "
                "instead"
            ) from error
        if last and last.stop_reason.startswith("SIG"):
            raise TrainingStoppedError(
                f"{out}: stopped by {last.stop_reason} after update {last.step}, which is saved; "
                "resume the run to continue"
            )
        datasets.wait()  # until the main process has written the best weights
    return checkpoint.load_task(out, device=str(device), embedders=datasets.embedders)


def _follow(
    reports: Iterable[Report],
    on_report: OnReport | None,
    trainable: "TaskTrainable",
    datasets: TaskDatasets,
) -> Report | None:
    """Pass reports on, and log how long an epoch took and what the layer cache saved."""
    marks: list[tuple[int, float]] = []  # the first and the last report
    report = None
    for report in reports:
        marks[1:] = [(report.step, time.perf_counter())]
        if on_report is not None:
            on_report(report)
    if len(marks) == 2 and datasets.layers.train is not None and datasets.dist_env.is_main:
        (first, start_time), (last, end_time) = marks
        epoch = (end_time - start_time) / (last - first) * trainable.updates_per_epoch
        saved = datasets.layers.seconds
        if saved:
            _log.info("an epoch took %.1f s; the biLM in each would add %.1f s", epoch, saved)
        else:
            _log.info("an epoch took %.1f s, without the biLM", epoch)
    return report


def new_task(datasets: TaskDatasets, recipe: TaskConfig, examples: Sequence[Any]) -> TrainedTask:
    """Build the network, with weights that the seed determines."""
    task, words = type(datasets.task)(recipe), None
    if datasets.embedders.vectors is None and datasets.embedders.elmo is None:
        sentences = (sentence for example in examples for sentence in task.sentences(example))
        words = build_vocabulary(sentences, min_count=recipe.words.min_count)
    torch.manual_seed(recipe.train.seed)
    return trained_task.build(task, datasets.labels, words, datasets.embedders)


@dataclass
class TaskTrainable:
    """Adapts a task to the `Trainable` protocol of the training loop."""

    trained: TrainedTask
    examples: Sequence[Any]
    datasets: TaskDatasets

    higher_is_better = True

    def __post_init__(self) -> None:
        task, config = self.trained.task, self.trained.task.config
        self.metric = task.metric
        self.unit = self.trained.network.model.unit
        self.dist_env = self.datasets.dist_env
        self.batches_per_epoch = batches.num_batches(len(self.examples), config.batch_size)
        self.updates_per_epoch = self.batches_per_epoch / config.train.grad_accum_steps
        smallest = len(self.examples) // self.batches_per_epoch
        if smallest < self.dist_env.world_size:
            raise ConfigError(
                f"batches of {smallest} examples cannot be divided among "
                f"{self.dist_env.world_size} processes; raise batch_size, or start fewer"
            )
        self._layers: CachedLayers | None = self.datasets.layers.train
        self._sentences = [task.sentences(example) for example in self.examples]
        self._lengths = [task.length(example) for example in self.examples]
        self._epoch: tuple[int, list[list[int]]] | None = None

    @property
    def module(self) -> TaskNetwork:
        """The network to train."""
        return self.trained.network

    def make_batch(self, number: int) -> Batch:
        """Return this process's part of a batch."""
        epoch, position = divmod(number, self.batches_per_epoch)
        current = self._epoch
        if current is None or current[0] != epoch:  # once an epoch; several threads may ask
            config = self.trained.task.config
            divided = batches.epoch_batches(
                self._lengths, config.batch_size, seed=config.train.seed, epoch=epoch
            )
            self._epoch = current = (epoch, divided)
        rows = current[1][position][self.dist_env.rank :: self.dist_env.world_size]
        return self.trained.make_batch(
            [self.examples[i] for i in rows],
            [self._sentences[i] for i in rows],
            self._layers,
            with_gold=True,
        )

    def evaluate(self) -> dict[str, float]:
        """Score the dev examples."""
        dev = self.datasets.dev
        predictions = self.trained.predict_examples(dev, self.datasets.layers.dev)
        return self.trained.task.score(dev, predictions)

    def save(self, destination: Path, scores: dict[str, float]) -> None:
        """Write the task with its current weights, and remove the test scores of earlier ones."""
        self.trained.scores = scores
        for name in (TEST_RESULTS, TEST_COUNTS):
            (destination.parent / name).unlink(missing_ok=True)
        checkpoint.save_task(self.trained, destination)


def choose_embedder(named: str | None, resumed: Path | None = None) -> str:
    """Return the named embedder, else the recorded one of the run to resume, else the default."""
    if named is not None:
        return named
    path = None if resumed is None else resumed / "recipe.json"
    recorded = config.read_json(path) if path and path.is_file() else {}
    match recorded.get("embedder"):
        case {"specification": str(spec)}:
            return spec
    return DEFAULT_EMBEDDER


def _describe_run(
    datasets: TaskDatasets,
    recipe: TaskConfig,
    examples: Sequence[Any],
    fraction: float | None,
    recipe_path: Path | None,
) -> dict[str, Any]:
    """Describe a run as recipe.json records it, for `--resume` to compare.

    Files of examples are identified by their bytes and the recipe's `data` settings, embedders by
    their words and weights. With the recipe.json of a run to resume, what has not changed is
    described as it is there: an embedder that was moved, examples that an earlier version
    identified by their parsed form, and settings that an earlier version did not have.
    """
    before: dict[str, Any] = {}
    settings, embedders = config.as_dict(recipe), datasets.embedders
    if recipe_path and recipe_path.is_file():
        before = config.rename_old_keys(config.read_json(recipe_path), str(recipe_path))
        recorded = config.build(type(recipe), before, str(recipe_path), unknown="ignore")
        settings = _drop_unrecorded(settings, config.as_dict(recorded), before)
    spec = str(embedders.spec)
    match before.get("embedder"):
        case {"specification": there, **digests} if digests == embedders.digests:
            spec = there
    match before.get("data"):
        case {"train": str(), "dev": str()}:
            data = {"train": hash_examples(examples), "dev": hash_examples(datasets.dev)}
        case _:
            data = {**settings.get("data", {}), "sha256": datasets.sha256}
    if fraction is not None:
        data |= {"fraction": fraction, "examples": len(examples)}
    return {
        **settings,
        "task": datasets.task.name,
        "embedder": {"specification": spec, **embedders.digests},
        "data": data,
    }


def _drop_unrecorded(
    settings: dict[str, Any], recorded: dict[str, Any], before: dict[str, Any]
) -> dict[str, Any]:
    """Drop settings that a recipe.json lacks if they have the value that it is read with."""
    kept = {}
    for key, value in settings.items():
        if key in before or value != recorded[key]:
            nested = isinstance(value, dict) and isinstance(before.get(key), dict)
            kept[key] = _drop_unrecorded(value, recorded[key], before[key]) if nested else value
    return kept
