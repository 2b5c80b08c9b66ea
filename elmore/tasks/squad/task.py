"""Extractive question answering."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from elmore.errors import DataError
from elmore.tasks.embedding.network import Widths
from elmore.tasks.metrics import counts
from elmore.tasks.squad import data, metric
from elmore.tasks.squad.data import Question
from elmore.tasks.squad.model import SquadHead, SquadModelConfig
from elmore.tasks.squad.offsets import tokenize_with_offsets
from elmore.tasks.squad.spans import window_with_answer
from elmore.tasks.task import Features, Task, TaskConfig


@dataclass(frozen=True, kw_only=True)
class SquadData:
    """How passages are embedded."""

    split_sentences: bool = False
    """Embed each sentence of a passage on its own, as the biLM was trained, not the passage as one
    sequence. Everything above the embedding sees the whole passage either way."""


@dataclass(frozen=True, kw_only=True)
class SquadConfig(TaskConfig):
    """The recipe for question answering."""

    data: SquadData = field(default_factory=SquadData)
    model: SquadModelConfig = field(default_factory=SquadModelConfig)


class Squad(Task):
    """Answer a question with a span of a passage."""

    name = "squad"
    metric = "f1"
    config_class = SquadConfig

    config: SquadConfig

    def read_examples(self, path: Path) -> list[Question]:
        """Read SQuAD's JSON, or JSON lines."""
        return data.read_squad(path)

    def tokenize(self, text: str, *, tokenized: bool = False) -> list[str]:
        """Split a question or a passage into tokens."""
        return text.split() if tokenized else tokenize_with_offsets(text).words

    def example_from_text(self, text: str, *, tokenized: bool = False) -> Question:
        """Return an example from a question, a tab and a passage."""
        tokenizer = partial(self.tokenize, tokenized=tokenized)
        question, passage = (
            tokenize_with_offsets(part, tokenizer) for part in text.partition("\t")[::2]
        )
        if not question.words or not passage.words:
            raise DataError(
                f"expected a question, a tab and the passage that answers it, found {text[:40]!r}; "
                "where lines are piped, all three are on one"
            )
        return Question(None, passage, question, [])

    def sentences(self, example: Question) -> list[list[str]]:
        """Return the passage, as one sentence or as several, and the question."""
        passage = example.passage
        split = self.config.data.split_sentences
        return [*(passage.sentences if split else [passage.words]), example.question.words]

    def length(self, example: Question) -> int:
        """Return the length of the passage or of the question, whichever is longer."""
        return max(len(example.passage.words), len(example.question.words))

    def collect_labels(self, examples: Sequence[Question]) -> list[str]:
        """Return what a token is scored as."""
        return ["start", "end"]

    def gold_labels(self, example: Question) -> list[str]:
        """Return nothing: an answer is not a label."""
        return []

    def build_head(self, widths: Widths, labels: list[str]) -> SquadHead:
        """Build the network."""
        return SquadHead(self.config.model, widths)

    def make_features(
        self, examples: Sequence[Question], labels: list[str], *, with_gold: bool
    ) -> Features:
        """Return the number of sentences of each example (B), of which the question is the last.

        With gold answers, also the start of the window over each passage (B), and the answers in it
        (B, N, 2).
        """
        rows = torch.tensor([len(self.sentences(example)) for example in examples])
        if not with_gold:
            return {"rows": rows}
        starts, windows = [], []
        for example in examples:
            answers = [(answer.first, answer.last) for answer in example.answers]
            length = len(example.passage.words)
            start, inside = window_with_answer(answers, length, self.config.model.window)
            starts.append(start)
            windows.append(inside)
        spans = np.full((len(windows), max(map(len, windows)), 2), -1)
        for row, inside in zip(spans, windows, strict=True):
            row[: len(inside)] = inside
        windows_and_spans = {"windows": torch.tensor(starts), "spans": torch.from_numpy(spans)}
        return {"rows": rows, **windows_and_spans}

    def score(
        self, examples: Sequence[Question], predictions: Sequence[list[int]]
    ) -> dict[str, float]:
        """Return f1 and exact match."""
        pairs = zip(examples, predictions, strict=True)
        predicted = [example.passage.cut(*prediction) for example, prediction in pairs]
        return metric.score([[a.text for a in example.answers] for example in examples], predicted)

    def count(self, example: Question, prediction: list[int]) -> tuple[float, ...]:
        """Return the word overlap of the answer."""
        predicted = example.passage.cut(*prediction)
        return metric.best_overlap([a.text for a in example.answers], predicted), 1.0

    def score_counts(self, sums: Float[np.ndarray, "R C"]) -> Float[np.ndarray, " R"]:
        """Return the mean overlap."""
        return counts.ratio(sums)

    def format_text(self, example: Question, prediction: list[int]) -> str:
        """Return the answer, on one line."""
        return " ".join(example.passage.cut(*prediction).split())

    def to_dict(self, example: Question, prediction: list[int]) -> dict[str, Any]:
        """Return the answer as it is written, and its range of characters."""
        start, end = example.passage.characters(*prediction)
        return {
            **({} if example.id is None else {"id": example.id}),
            "question": example.question.text,
            "answer": example.passage.text[start:end],
            "start": start,
            "end": end,
        }
