"""Small example files, a small biLM and small recipes for every task.

Used by tests/tasks and by every test that trains a task or needs a small model on disk.
"""

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from elmore.model.bilm import BiLM
from elmore.model.config import BiLMConfig, CharCNNConfig, LSTMConfig
from elmore.tasks.registry import find_task, load_recipe
from elmore.tasks.train import train as train_task
from elmore.tasks.trained_task import TrainedTask
from elmore.text.characters import ByteAlphabet
from elmore.train.fit import Report
from elmore.weights import folder
from elmore.weights.bundle import Bundle


class Typed(NamedTuple):
    """A file with the difficult cases of its format, and its examples as texts.

    The texts are raw if the file holds raw text, tokenized if it holds tokens.
    """

    file: str
    texts: Sequence[str]
    tokenized: bool = False
    settings: Sequence[str] = ()
    score: Callable[[Sequence[Any], Sequence[Any]], dict[str, float]] | None = None
    """Replaces the task's own score if that needs more than a text."""
    compared: Callable[[Sequence[Any]], list[Any]] = list
    """Selects what of the predictions does not need more than a text."""


PEOPLE, PLACES, VERBS = ("Ann Lee", "Bo", "Cy Young Jr."), ("Rome", "New York"), ("saw", "left")


def sentences(number: int = 20) -> list[list[tuple[str, str, str]]]:
    """Return (word, name tag, part of speech) of made-up sentences, all different."""
    result = []
    for i in range(number):
        person, city = PEOPLE[i % 3], PLACES[i // 3 % 2]
        words = [(word, "person", "NNP") for word in person.split()]
        words.append((VERBS[i // 6 % 2], "", "VBD"))
        words += [(word, "location", "NNP") for word in city.split()]
        words += [("again", "", "RB")] * (i // 12) + [(".", "", ".")]
        rows, before = [], ""
        for word, kind, tag in words:
            name = f"{'I' if kind == before else 'B'}-{kind}" if kind else "O"
            rows.append((word, name, tag))
            before = kind
        result.append(rows)
    return result


def write(task: str, path: Path, number: int = 20) -> Path:
    """Write a file of a task's examples, as `tests/tasks/TASK/examples.py` has them."""
    path.write_text(_of(task).text(number))
    return path


def small(task: str) -> list[str]:
    """Return settings that make the recipe of a task small."""
    return ["batch_size=8", "train.lr=0.02", "train.epochs=30", *_of(task).SMALL]


def typed(task: str, example: Any) -> str:
    """Return an example as a user types it, its tokens separated by spaces."""
    own = getattr(_of(task), "typed", None)
    return own(example) if own else " ".join(example.tokens)


def typed_files(task: str) -> Sequence[Typed]:
    """Return files whose examples a user can type as texts."""
    return _of(task).TYPED


def unusual_texts(task: str) -> tuple[str, ...]:
    """Return texts that a user might type, unlike the examples."""
    return getattr(_of(task), "UNUSUAL", ("Ann " * 40, "", "Bo"))


def other_scores(task: str) -> tuple[str, ...]:
    """Return the names of scores that become perfect as well, beside the deciding one."""
    return getattr(_of(task), "SCORES", ())


def _of(task: str) -> ModuleType:
    return importlib.import_module(f"tests.tasks.{task}.examples")


class Trained(NamedTuple):
    """A small training that has ended."""

    task: TrainedTask
    reports: list[Report]
    data: Path
    """Its training and dev examples."""
    out: Path


def train(
    path: Path,
    name: str = "ner",
    *more: str,
    embedder: str = "none",
    out: str = "run",
    **options: Any,
) -> Trained:
    """Train a task for two epochs, unless `more` says otherwise, in a folder."""
    kind = find_task(name)
    data = write(name, path / f"{name}.txt")
    recipe = load_recipe(kind, None, [*small(name), "train.epochs=2", *more])
    reports: list[Report] = []
    options = {"embedder": embedder, "device": "cpu", "on_report": reports.append, **options}
    task = train_task(kind, recipe, data, data, path / out, **options)
    return Trained(task, reports, data, path / out)


def vectors(path: Path, dim: int = 8) -> Path:
    """Write word vectors, in lower case as GloVe's, of all but a few words."""
    words = sorted({word.lower() for rows in sentences() for word, _, _ in rows} - {"bo"})
    numbers = torch.randn(len(words), dim, generator=torch.Generator().manual_seed(1))
    rows = zip(words, numbers.tolist(), strict=True)
    path.write_text("".join(f"{word} {' '.join(f'{x:.4f}' for x in row)}\n" for word, row in rows))
    return path


def bilm(path: Path, seed: int = 0) -> Path:
    """Write a small biLM."""
    torch.manual_seed(seed)
    config = BiLMConfig(
        characters=CharCNNConfig(filters=((1, 8), (3, 8)), num_highways=1),
        lstm=LSTMConfig(cell_dim=16, output_dim=8),
    )
    folder.save(Bundle(BiLM(config).eval(), ByteAlphabet()), path)
    return path
