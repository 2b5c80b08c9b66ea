"""Questions on a passage, whose answers are stretches of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmore.errors import DataError
from elmore.tasks.embedding.network import Widths
from elmore.tasks.squad import data, metric
from elmore.tasks.squad.data import Question
from elmore.tasks.squad.model import SquadModel, SquadModelConfig
from elmore.tasks.squad.offsets import place
from elmore.tasks.squad.spans import window_of
from elmore.tasks.task import Features, Task, TaskConfig


@dataclass(frozen=True, kw_only=True)
class SquadConfig(TaskConfig):
    """A recipe for questions."""

    model: SquadModelConfig = field(default_factory=SquadModelConfig)


class Squad(Task):
    """Find the answer to a question in a passage."""

    name = "squad"
    metric = "f1"
    config_class = SquadConfig

    config: SquadConfig

    def read(self, path: Path) -> list[Question]:
        """Read SQuAD's JSON, or JSON lines."""
        return data.read(path)

    def tokenize(self, text: str, *, tokenized: bool = False) -> list[str]:
        """Split a question or a passage into tokens, of a file or typed."""
        return text.split() if tokenized else place(text).words

    def example(self, text: str, *, tokenized: bool = False) -> Question:
        """Make an example of a question, a tab and a passage."""
        tokenizer = partial(self.tokenize, tokenized=tokenized)
        question, passage = (place(part, tokenizer) for part in text.partition("\t")[::2])
        if not question.words or not passage.words:
            raise DataError(
                f"expected a question, a tab and the passage that answers it, found {text[:40]!r}; "
                "where lines are piped, all three are on one"
            )
        return Question(None, passage, question, [])

    def sentences(self, example: Question) -> list[list[str]]:
        """Give the passage, as one sentence, and the question."""
        return [example.passage.words, example.question.words]

    def labels(self, examples: Sequence[Question]) -> list[str]:
        """Give the two things a token is scored as."""
        return ["start", "end"]

    def truth(self, example: Question) -> list[str]:
        """Give nothing: an answer is no label."""
        return []

    def model(self, widths: Widths, labels: list[str]) -> SquadModel:
        """Build the network."""
        return SquadModel(self.config.model, widths)

    def features(self, examples: Sequence[Question], labels: list[str], *, truth: bool) -> Features:
        """Give where the window over each passage starts (B), and the answers in it (B, N, 2)."""
        if not truth:
            return {}
        starts, found = [], []
        for example in examples:
            answers = [(answer.first, answer.last) for answer in example.answers]
            length = len(example.passage.words)
            start, inside = window_of(answers, length, self.config.model.window)
            starts.append(start)
            found.append(inside)
        spans = np.full((len(found), max(map(len, found)), 2), -1)
        for row, inside in zip(spans, found, strict=True):
            row[: len(inside)] = inside
        return {"windows": torch.tensor(starts), "spans": torch.from_numpy(spans)}

    def score(
        self, examples: Sequence[Question], predictions: Sequence[list[int]]
    ) -> dict[str, float]:
        """Compare answers as SQuAD's own script does."""
        pairs = zip(examples, predictions, strict=True)
        found = [example.passage.cut(*prediction) for example, prediction in pairs]
        return metric.score([[a.text for a in example.answers] for example in examples], found)

    def show(self, example: Question, prediction: list[int]) -> str:
        """Give the answer, on one line."""
        return " ".join(example.passage.cut(*prediction).split())

    def as_json(self, example: Question, prediction: list[int]) -> dict[str, Any]:
        """Give the answer just as the passage has it, and its place there in characters."""
        start, end = example.passage.characters(*prediction)
        return {
            **({} if example.id is None else {"id": example.id}),
            "question": example.question.text,
            "answer": example.passage.text[start:end],
            "start": start,
            "end": end,
        }
