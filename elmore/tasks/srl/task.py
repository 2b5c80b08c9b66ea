"""Semantic role labelling: who did what to whom, for each predicate of a sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float

from elmore.tasks.embedding.network import Widths
from elmore.tasks.metrics import counts
from elmore.tasks.metrics.bio import extract_spans
from elmore.tasks.srl import data, metric
from elmore.tasks.srl.data import SRLExample
from elmore.tasks.srl.model import UNLABELLED, SRLHead, SRLModelConfig
from elmore.tasks.task import Features, Task, TaskConfig


@dataclass(frozen=True, kw_only=True)
class SRLData:
    """The format of the files."""

    format: Literal["auto", "propbank", "conll2012", "conll2005"] = "auto"
    """`auto` detects it from the first line."""
    predicates: Literal["all", "verbs"] = "all"
    """All predicates, or only those tagged VB."""


@dataclass(frozen=True, kw_only=True)
class SRLConfig(TaskConfig):
    """The recipe for semantic roles."""

    data: SRLData = field(default_factory=SRLData)
    model: SRLModelConfig = field(default_factory=SRLModelConfig)


class SRL(Task):
    """Label the arguments of predicates. An example is a sentence with all of its frames."""

    name = "srl"
    metric = "f1"
    config_class = SRLConfig

    config: SRLConfig

    def read_examples(self, path: Path) -> list[SRLExample]:
        """Read a file of props."""
        settings = self.config.data
        return data.read_srl(path, form=settings.format, predicates=settings.predicates)

    def example_from_text(self, text: str, *, tokenized: bool = False) -> SRLExample:
        """Return an example without predicates."""
        return SRLExample(self.tokenize(text, tokenized=tokenized), [])

    def sentences(self, example: SRLExample) -> list[list[str]]:
        """Return its one sentence."""
        return [example.tokens]

    def collect_labels(self, examples: Sequence[SRLExample]) -> list[str]:
        """Return every tag of the training examples."""
        return sorted({"O"}.union(*(frame.tags for e in examples for frame in e.frames)))

    def gold_labels(self, example: SRLExample) -> list[str]:
        """Return the tags of all frames."""
        return [tag for frame in example.frames for tag in frame.tags]

    def build_head(self, widths: Widths, labels: list[str]) -> SRLHead:
        """Build the network."""
        return SRLHead(self.config.model, widths, labels)

    def make_features(
        self, examples: Sequence[SRLExample], labels: list[str], *, with_gold: bool
    ) -> Features:
        """Return rows and tokens of gold predicates (F), their tags (F, T), and a mask (B, T)."""
        frames = [(row, frame) for row, e in enumerate(examples) for frame in e.frames]
        rows = [row for row, _ in frames]
        predicates = [frame.predicate for _, frame in frames]
        if not with_gold:
            return {"rows": _tensor(rows), "predicates": _tensor(predicates)}
        number = {label: i for i, label in enumerate(labels)}
        longest = max(len(example.tokens) for example in examples)
        is_predicate = np.zeros((len(examples), longest), dtype=bool)
        is_predicate[rows, predicates] = True
        # In distributed training every weight needs a gradient, so a batch without frames gets one
        # without labels.
        tags = np.full((max(1, len(frames)), longest), UNLABELLED)
        for row, (_, frame) in zip(tags, frames, strict=False):
            row[: len(frame.tags)] = [number[tag] for tag in frame.tags]
        return {
            "rows": _tensor(rows or [0]),
            "predicates": _tensor(predicates or [0]),
            "tags": torch.from_numpy(tags),
            "is_predicate": torch.from_numpy(is_predicate),
        }

    def score(
        self, examples: Sequence[SRLExample], predictions: Sequence[list[dict[str, Any]]]
    ) -> dict[str, float]:
        """Return precision, recall and F1 over arguments."""
        return metric.score([example.frames for example in examples], predictions)

    def count(self, example: SRLExample, prediction: list[dict[str, Any]]) -> tuple[float, ...]:
        """Count correct, predicted and gold arguments of gold predicates."""
        return metric.count_arguments([example.frames], [prediction]).totals()

    def score_counts(self, sums: Float[np.ndarray, "R C"]) -> Float[np.ndarray, " R"]:
        """Return the F1 over arguments."""
        return counts.f1(sums)

    def format_text(self, example: SRLExample, prediction: list[dict[str, Any]]) -> str:
        """Write the sentence once for each predicate, its arguments in brackets."""
        lines = []
        for frame in prediction:
            words = list(example.tokens)
            predicate = words[frame["predicate"]]
            for first, after, label in extract_spans(_tags(frame)):
                words[first] = f"[{words[first]}"
                words[after - 1] += f" {label}]"
            lines.append(f"{predicate}: {' '.join(words)}")
        return "; ".join(lines) or " ".join(example.tokens)

    def to_dict(self, example: SRLExample, prediction: list[dict[str, Any]]) -> dict[str, Any]:
        """Return tokens, and for each predicate its index and the tags."""
        frames = [{"predicate": f["predicate"], "tags": _tags(f)} for f in prediction]
        return {"tokens": example.tokens, "frames": frames}


def _tags(frame: Mapping[str, Any]) -> list[str]:
    """Return the tags of a predicted frame with V at its predicate and nowhere else.

    Decoding does not enforce this; no score depends on V.
    """
    tags, predicate = list(frame["tags"]), frame["predicate"]
    for first, after, label in extract_spans(tags):
        if label == "V" and not first <= predicate < after:
            tags[first:after] = ["O"] * (after - first)
    if tags[predicate] == "O":
        tags[predicate] = "B-V"
    return tags


def _tensor(numbers: Sequence[int]) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.long)
