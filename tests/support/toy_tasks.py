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
from elmore.text.characters import ByteAlphabet
from elmore.weights import folder
from elmore.weights.bundle import Bundle


class Typed(NamedTuple):
    """A file with what is hard about its kind, and the texts that say the same.

    These are the raw texts where a file holds such, its tokens where it holds tokens.
    """

    file: str
    texts: Sequence[str]
    tokenized: bool = False
    settings: Sequence[str] = ()
    score: Callable[[Sequence[Any], Sequence[Any]], dict[str, float]] | None = None
    """In place of the task's own, where that needs more than a text."""
    compared: Callable[[Sequence[Any]], list[Any]] = list
    """What of the predictions does not need it."""


PEOPLE, PLACES, VERBS = ("Ann Lee", "Bo", "Cy Young Jr."), ("Rome", "New York"), ("saw", "left")


def sentences(number: int = 20) -> list[list[tuple[str, str, str]]]:
    """Give (word, name tag, part of speech) of made-up sentences, all different."""
    found = []
    for i in range(number):
        person, place = PEOPLE[i % 3], PLACES[i // 3 % 2]
        words = [(word, "person", "NNP") for word in person.split()]
        words.append((VERBS[i // 6 % 2], "", "VBD"))
        words += [(word, "location", "NNP") for word in place.split()]
        words += [("again", "", "RB")] * (i // 12) + [(".", "", ".")]
        rows, before = [], ""
        for word, kind, tag in words:
            name = f"{'I' if kind == before else 'B'}-{kind}" if kind else "O"
            rows.append((word, name, tag))
            before = kind
        found.append(rows)
    return found


def write(task: str, path: Path, number: int = 20) -> Path:
    """Write a file of a task's examples, as `tests/tasks/TASK/examples.py` has them."""
    path.write_text(_of(task).text(number))
    return path


def small(task: str) -> list[str]:
    """Say over a task's recipe what makes it small."""
    return ["batch_size=8", "train.lr=0.02", "train.epochs=30", *_of(task).SMALL]


def typed(task: str, example: Any) -> str:
    """Write an example as a person types it, its tokens set apart."""
    own = getattr(_of(task), "typed", None)
    return own(example) if own else " ".join(example.tokens)


def typed_files(task: str) -> Sequence[Typed]:
    """Give files for which a person can type the same."""
    return _of(task).TYPED


def odd(task: str) -> tuple[str, ...]:
    """Give texts that a person might type, unlike the examples."""
    return getattr(_of(task), "ODD", ("Ann " * 40, "", "Bo"))


def other_scores(task: str) -> tuple[str, ...]:
    """Name what becomes perfect as well, beside the score that decides."""
    return getattr(_of(task), "SCORES", ())


def _of(task: str) -> ModuleType:
    return importlib.import_module(f"tests.tasks.{task}.examples")


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
