"""Readers of recipes, run folders, trained tasks, and what a report is made of."""

import json
import shutil
from pathlib import Path

import torch

from elmore import recipes
from elmore.lm import config as lm_config
from elmore.lm.pretrain import pretrain
from elmore.probe import report
from elmore.tasks import checkpoint, registry
from elmore.tasks.checkpoint import load_task
from elmore.tasks.registry import TASKS
from elmore.train import optimizers
from elmore.train.checkpoint import Checkpoint, Progress
from elmore.train.config import TrainConfig
from elmore.train.runs import Run
from tests.formats import make
from tests.fuzz.reader import FORMATS, Reader
from tests.fuzz.texts import copy
from tests.support import toy_corpus
from tests.support.toy_training import Line

_CPU = torch.device("cpu")
_PROGRESS = Progress(step=3, best_score=0.5, evals_since_best=0)


def _recipes(place: Path) -> None:
    for path in recipes.FOLDER.rglob("*.toml"):
        copied = place / path.relative_to(recipes.FOLDER)
        copied.parent.mkdir(exist_ok=True)
        shutil.copy(path, copied)
    (place / "tasks").mkdir()
    for name in TASKS:
        own = Path(registry.__file__).parent / name / "recipe.toml"
        shutil.copy(own, place / "tasks" / f"{name}.toml")
    (place / "small.toml").write_text(toy_corpus.RECIPE)


def _read_recipes(place: Path) -> None:
    for path in sorted((*place.glob("bilm/*.toml"), place / "small.toml")):
        lm_config.read_pretrain_recipe(str(path))
    lm_config.read_finetune_recipe(str(place / "finetune.toml"))
    for name in TASKS:
        registry.load_recipe(registry.find_task(name), place / "tasks" / f"{name}.toml")


def _toy() -> tuple[Line, torch.optim.Optimizer]:
    module = Line()
    optimizer = optimizers.build_optimizer(module, TrainConfig())
    module((torch.ones(2, 3).double(), torch.ones(2).double()), None).loss.backward()
    optimizer.step()
    return module, optimizer


def _run(place: Path) -> None:
    run = Run(place / "run")
    run.create_or_resume({"train": {"seed": 1}}, resume=False)
    run.append_metrics([{"step": step, "loss": 1.0, "valid_score": 0.5} for step in (1, 2, 3)])
    carried = {"memory": torch.ones(2).double()}
    run.save_checkpoint(*_toy(), Checkpoint(_PROGRESS, carried), keep=1)


def _resume_run(place: Path) -> None:
    run, (module, optimizer) = Run(place / "run"), _toy()
    run.create_or_resume({"train": {"seed": 1}}, resume=True)
    result = run.load_checkpoint(module, optimizer, _CPU)
    optimizer.step()  # the gradient is still there
    run.truncate_metrics(result.progress.step if result else 0)


def _resume_pretraining(place: Path) -> None:
    for _ in pretrain(
        toy_corpus.recipe(*make.RECIPE), FORMATS / "corpus-1", place, resume=True, device="cpu"
    ):
        pass


def _reported(place: Path) -> None:
    shutil.copytree(FORMATS / "run-1", place / "run")
    shutil.rmtree(place / "run" / "checkpoints")
    shutil.rmtree(place / "run" / "best")
    for number in range(2):
        shutil.copytree(FORMATS / "task-1" / "run", place / "several" / f"seed-{number}")
    shutil.copy(FORMATS / "summary-1" / "summary.json", place / "several")


def _build_report(place: Path) -> None:
    assert report.build([place / "run", place / "several"]).html


def _printed(place: Path) -> None:
    for path in (FORMATS / "printed-1").glob("*.json"):
        shutil.copy(path, place)
    shutil.copy(FORMATS / "summary-1" / "summary.json", place)
    scores = {"f1": 0.5, "f1_low": 0.4, "f1_high": 0.6}
    senses = {
        "chosen": "top", "held_out": {"top": scores}, "tests": {"s": {"top": scores, "0": scores}},
        "num_uses": 3, "num_senses": 2,
    }  # fmt: skip
    (place / "wsd.json").write_text(json.dumps(senses))
    rows = [
        {"layer": str(n), "test": 0.5, "dev": 0.4, "control": 0.1, "selectivity": 0.4}
        for n in (0, 1)
    ]
    (place / "pos.json").write_text(json.dumps(rows))
    uses = [
        {
            "tokens": ["a", "play"], "start": 1, "end": 2, "sense": None, "cluster": n % 2,
            "x": 0.1 * n, "y": 0.2,
        }
        for n in range(4)
    ]  # fmt: skip
    use_map = {
        "word": "play", "layers": "top", "method": "pca", "variance": [0.5, 0.2], "num_found": 4,
        "num_clusters": 2,
        "silhouette": 0.5, "purity": None, "adjusted_rand": None, "uses": uses,
    }  # fmt: skip
    (place / "uses.json").write_text(json.dumps(use_map))


def _report_printed(place: Path) -> None:
    for path in sorted(place.iterdir()):
        assert report.build([path]).html


def _solver(place: Path) -> None:
    shutil.copytree(FORMATS / "task-2" / "run" / "best", place / "run" / "best")
    shutil.copytree(FORMATS / "task-2" / "bilm", place / "bilm")


def _predict(place: Path) -> None:
    list(load_task(place / "run", device="cpu").predict(["Ann saw Rome .", ""]))
    checkpoint.find_runs(place)


READERS = (
    Reader("recipes", ("elmore.config",), _recipes, _read_recipes, share=0.5),
    Reader(
        "run folder",
        ("elmore.train.runs", "elmore.train.checkpoint", "elmore.config"),
        _run,
        _resume_run,
        share=2,
    ),
    Reader("pretraining", ("elmore.train.runs",), copy("run-1"), _resume_pretraining, share=0.1),
    Reader(
        "report of runs",
        ("elmore.probe.reporting.load_runs", "elmore.probe.reporting.inputs"),
        _reported,
        _build_report,
        share=0.5,
    ),
    Reader(
        "report of results",
        ("elmore.probe.reporting.load_results",),
        _printed,
        _report_printed,
        share=2,
    ),
    Reader(
        "trained task",
        ("elmore.tasks.checkpoint", "elmore.tasks.embedding.word_vectors"),
        _solver,
        _predict,
    ),
)
