"""A task is a folder and a line: here one is added that the package does not know."""

import json
import re
import sys
from pathlib import Path

import pytest

from elmore import cli
from elmore.errors import ConfigError
from elmore.tasks import registry
from elmore.tasks.registry import TASKS
from tests.support.cli_runner import run_elmore

TASK = '''
"""Classify texts as questions or answers: each line has a label, a tab and a text."""

from dataclasses import dataclass, field

import torch

from elmore.tasks.classification import Classification, Classifier, Labelled
from elmore.tasks.layers.pooling import masked_mean
from elmore.tasks.task import TaskConfig


@dataclass(frozen=True)
class Text(Labelled):
    tokens: list[str]


@dataclass(frozen=True, kw_only=True)
class ToyModelConfig:
    bias: bool = True


@dataclass(frozen=True, kw_only=True)
class ToyConfig(TaskConfig):
    model: ToyModelConfig = field(default_factory=ToyModelConfig)


class ToyModel(Classifier):
    def __init__(self, config, widths, labels):
        super().__init__(labels)
        self.output = torch.nn.Linear(widths.input, len(labels), bias=config.bias)

    def scores(self, embedded):
        return self.output(masked_mean(embedded.vectors, embedded.mask))


class Toy(Classification):
    name = "toy"
    config_class = ToyConfig

    def read(self, path):
        lines = path.read_text().splitlines()
        return [Text(label, self.tokenize(text)) for label, text in (s.split("\\t") for s in lines)]

    def example(self, text, *, tokenized=False):
        return Text("", self.tokenize(text, tokenized=tokenized))

    def sentences(self, example):
        return [example.tokens]

    def model(self, widths, labels):
        return ToyModel(self.config.model, widths, labels)

    def show(self, example, prediction):
        return f"{prediction}: {' '.join(example.tokens)}"

    def as_json(self, example, prediction):
        return {"tokens": example.tokens, "label": prediction}

'''
RECIPE = """
batch_size = 4

[train]
epochs = 20
lr = 0.1
warmup_steps = 0
evaluate_every = 0
save_every = 0
"""
TEXTS = "question\tWho left?\nanswer\tAnn left.\nquestion\tWho saw it?\nanswer\tBo saw it.\n"


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A file of the toy task, which is there for the time of a test."""
    folder = tmp_path / "toy_of_a_test"
    folder.mkdir()
    (folder / "task.py").write_text(TASK)
    (folder / "recipe.toml").write_text(RECIPE)
    (tmp_path / "data.tsv").write_text(TEXTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(TASKS, "toy", "toy_of_a_test.task:Toy")
    yield str(tmp_path / "data.tsv")
    for name in ("toy_of_a_test", "toy_of_a_test.task"):
        sys.modules.pop(name, None)


def said(*arguments: str) -> str:
    done = run_elmore(*arguments)
    assert done.code == 0, done.err
    return done.out


def test_a_folder_and_a_line_are_trained_scored_predicted_checked_and_reported(tmp_path, data):
    run, files = str(tmp_path / "run"), ("--train", data, "--dev", data)
    plain = ("--embedder", "none", "--set", "words.min_count=1", "--set", "words.dropout=0")
    checked = said("task", "train", "toy", *files, "--embedder", "none", "--check")
    assert "train\tlabels\t2: question 2, answer 2\t" in checked
    trained = said("task", "train", "toy", *files, "--test", data, *plain, "-o", run)
    assert trained.splitlines() == ["dev  accuracy 100.00", "test  accuracy 100.00"]
    assert json.loads(said("task", "evaluate", run, data, "--json")) == {"accuracy": 100.0}
    texts = [line.partition("\t")[2] for line in TEXTS.splitlines()]
    shown = said("task", "predict", run, *texts).splitlines()
    assert shown[:2] == ["question: Who left ?", "answer: Ann left ."]
    assert [line.partition(":")[0] for line in shown] == ["question", "answer"] * 2
    page = tmp_path / "report.html"
    said("report", run, "-o", str(page))
    assert "toy" in page.read_text()


def test_a_task_without_a_recipe_in_its_folder_is_refused(tmp_path, data):
    (tmp_path / "toy_of_a_test" / "recipe.toml").unlink()
    with pytest.raises(ConfigError, match=r"toy_of_a_test/recipe\.toml: no such recipe"):
        registry.load_recipe(registry.find_task("toy"))


def test_the_help_lists_every_task(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert ", ".join(TASKS) in said("task", "train", "--help")


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_known_by_its_name_to_its_folder_alone(name):
    assert registry.find_task(name).name == name
    room, own = Path(registry.__file__).parent, Path(registry.__file__).parent / name
    others = [path for path in room.rglob("*.py") if own not in path.parents]
    others.append(Path(cli.__file__).parent / "task.py")
    word = re.compile(rf"\b{name}\b")
    knowing = [path for path in others if word.search(path.read_text(encoding="utf-8"))]
    assert knowing == [room / "registry.py"]


def test_the_documents_list_every_task():
    text = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", text.partition("## Embedders")[0], re.MULTILINE) == [
        *TASKS
    ]
