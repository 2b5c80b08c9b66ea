"""Tasks are found by name, those of other packages too: here one is installed by pip."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from elmore import cli
from elmore.errors import ConfigError
from elmore.tasks import registry
from elmore.tasks.registry import TASKS
from tests.support.cli_runner import run_elmore

PLAIN = ("--embedder", "none", "--set", "words.min_count=1", "--set", "words.dropout=0")
TASK = '''
"""Classify texts as questions or answers: each line has a label, a tab and a text."""

from dataclasses import dataclass, field

import torch

from elmore.tasks.classification import ClassificationTask, ClassifierHead, LabeledExample
from elmore.tasks.layers.pooling import masked_mean
from elmore.tasks.task import TaskConfig


@dataclass(frozen=True)
class Text(LabeledExample):
    tokens: list[str]


@dataclass(frozen=True, kw_only=True)
class ToyModelConfig:
    bias: bool = True


@dataclass(frozen=True, kw_only=True)
class ToyConfig(TaskConfig):
    model: ToyModelConfig = field(default_factory=ToyModelConfig)


class ToyModel(ClassifierHead):
    def __init__(self, config, widths, labels):
        super().__init__(labels)
        self.output = torch.nn.Linear(widths.input, len(labels), bias=config.bias)

    def logits(self, embedded):
        return self.output(masked_mean(embedded.vectors, embedded.mask))


class Toy(ClassificationTask):
    name = "toy"
    config_class = ToyConfig

    def read_examples(self, path):
        lines = path.read_text().splitlines()
        return [Text(label, self.tokenize(text)) for label, text in (s.split("\\t") for s in lines)]

    def example_from_text(self, text, *, tokenized=False):
        return Text("", self.tokenize(text, tokenized=tokenized))

    def sentences(self, example):
        return [example.tokens]

    def build_head(self, widths, labels):
        return ToyModel(self.config.model, widths, labels)

    def format_text(self, example, prediction):
        return f"{prediction}: {' '.join(example.tokens)}"

    def to_dict(self, example, prediction):
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


PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "toy-task"
version = "1"

[project.entry-points."elmore.tasks"]
toy = "toy_task.task:Toy"
broken = "toy_task.task:Missing"
other = "toy_task.task:Toy"

[tool.hatch.build.targets.wheel]
packages = ["toy_task"]
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder into which pip has installed a package with a task."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    (source / "toy_task").mkdir()
    (source / "pyproject.toml").write_text(PROJECT)
    (source / "toy_task" / "__init__.py").touch()
    (source / "toy_task" / "task.py").write_text(TASK)
    (source / "toy_task" / "recipe.toml").write_text(RECIPE)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command = [*pip, "--no-build-isolation", "--target", str(site), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return site


@pytest.fixture
def installed(site, monkeypatch):
    """Make the package importable for the time of a test."""
    monkeypatch.syspath_prepend(site)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy_task"]:
        sys.modules.pop(name)


@pytest.fixture
def data(tmp_path) -> str:
    (tmp_path / "data.tsv").write_text(TEXTS)
    return str(tmp_path / "data.tsv")


def output_of(*arguments: str) -> str:
    done = run_elmore(*arguments)
    assert done.code == 0, done.err
    return done.out


def test_the_command_line_trains_a_task_of_an_installed_package(tmp_path, site, data):
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "300"}

    def elmore(*arguments: str) -> str:
        command = [sys.executable, "-m", "elmore", "task", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert f"{', '.join(TASKS)}, broken, other, toy" in elmore("train", "--help")
    files = ("--train", data, "--dev", data, "--test", data, "-o", str(tmp_path / "run"))
    trained = elmore("train", "toy", *files, *PLAIN)
    assert trained.splitlines() == ["dev  accuracy 100.00", "test  accuracy 100.00"]


def test_such_a_task_is_checked_scored_predicted_and_reported(tmp_path, installed, data):
    run, files = str(tmp_path / "run"), ("--train", data, "--dev", data)
    checked = output_of("task", "train", "toy", *files, "--embedder", "none", "--check")
    assert "train\tlabels\t2: question 2, answer 2\t" in checked
    output_of("task", "train", "toy", *files, *PLAIN, "-o", run)
    assert json.loads(output_of("task", "evaluate", run, data, "--json")) == {"accuracy": 100.0}
    texts = [line.partition("\t")[2] for line in TEXTS.splitlines()]
    shown = output_of("task", "predict", run, *texts).splitlines()
    assert shown[:2] == ["question: Who left ?", "answer: Ann left ."]
    assert [line.partition(":")[0] for line in shown] == ["question", "answer"] * 2
    page = tmp_path / "report.html"
    output_of("report", run, "-o", str(page))
    assert "toy" in page.read_text()


def test_a_task_without_a_recipe_beside_it_is_refused(installed, monkeypatch, tmp_path):
    toy = registry.find_task("toy")
    monkeypatch.setattr("inspect.getfile", lambda kind: str(tmp_path / "task.py"))
    with pytest.raises(ConfigError, match=r"recipe\.toml: no such recipe"):
        registry.load_recipe(toy)


def test_recipes_beside_the_default_are_found_by_name(site, installed):
    toy = registry.find_task("toy")
    (site / "toy_task" / "quick.toml").write_text(RECIPE.replace("epochs = 20", "epochs = 1"))
    assert sorted(registry.list_recipes(toy)) == ["quick", "recipe"]
    assert registry.load_recipe(toy, "quick").train.epochs == 1
    assert registry.load_recipe(toy).train.epochs == 20
    with pytest.raises(ConfigError, match=r"^quik: no such recipe of toy; name a file, or one of "):
        registry.load_recipe(toy, "quik")


def test_an_invalid_entry_point_is_reported_in_one_sentence(installed):
    with pytest.raises(ConfigError, match=r"task 'broken': toy_task.task:Missing cannot be loaded"):
        registry.find_task("broken")
    with pytest.raises(ConfigError, match=r"task 'other': expected a subclass of .*Task with the"):
        registry.find_task("other")


def test_a_package_cannot_replace_a_built_in_task(installed, monkeypatch):
    monkeypatch.setitem(TASKS, "toy", TASKS["ner"])
    assert registry.find_task("toy") is registry.find_task("ner")


def test_an_unknown_task_is_named():
    with pytest.raises(ConfigError, match=r"^no task 'nerd'; did you mean 'ner'\?$"):
        registry.find_task("nerd")


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_known_by_its_name_to_its_folder_alone(name):
    assert registry.find_task(name).name == name
    package = Path(registry.__file__).parent
    other_files = [path for path in package.rglob("*.py") if package / name not in path.parents]
    other_files.append(Path(cli.__file__).parent / "task.py")
    # a docstring may point to a task as an example
    word = re.compile(rf"(?<!`)\b{name}\b")
    knowing = [path for path in other_files if word.search(path.read_text(encoding="utf-8"))]
    assert knowing == [package / "registry.py"]


def test_the_documents_list_every_task():
    text = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \|", text.partition("## Embedders")[0], re.MULTILINE) == [
        *TASKS
    ]
