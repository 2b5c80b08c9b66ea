"""Coreference resolution: which phrases of a text refer to the same entity."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from elmore.tasks.coref import data, metric
from elmore.tasks.coref.config import CorefConfig
from elmore.tasks.coref.conll2012 import format_conll2012
from elmore.tasks.coref.conllu import format_conllu
from elmore.tasks.coref.document import Document, Mention, drop_singletons, sort_clusters
from elmore.tasks.coref.model import CorefHead
from elmore.tasks.data.columns import split_blocks
from elmore.tasks.embedding.network import Widths
from elmore.tasks.task import Features, Task
from elmore.text import sentences

Clusters = list[list[list[int]]]
"""Clusters of mentions: sentence, first token, the token after the last."""


class Coref(Task):
    """Find the clusters of mentions in a document."""

    name = "coref"
    metric = "average"
    config_class = CorefConfig

    config: CorefConfig

    def read_examples(self, path: Path) -> list[Document]:
        """Read a file of CoNLL-U or CoNLL-2012."""
        return data.read_documents(path, unbalanced=self.config.data.unbalanced)

    def split_texts(self, lines: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Group the lines up to a blank one into a document."""
        for block in split_blocks(lines):
            yield block[0][0], "\n".join(line for _, line in block)

    def example_from_text(self, text: str, *, tokenized: bool = False) -> Document:
        """Split a text into sentences and tokens.

        In a tokenized text each line is a sentence, and a tab ends the name of its speaker, if the
        line has one.
        """
        if tokenized:
            spoken = [_split_speaker(line) for line in text.split("\n")]
        else:
            spoken = [("", text[start:end]) for start, end in sentences.split_sentences(text)]
        split = [
            (speaker, self.tokenize(text_part, tokenized=tokenized))
            for speaker, text_part in spoken
        ]
        tokenized_lines = [(speaker, tokens) for speaker, tokens in split if tokens]
        return Document(
            [tokens for _, tokens in tokenized_lines],
            [speaker for speaker, _ in tokenized_lines],
            [],
        )

    def sentences(self, example: Document) -> list[list[str]]:
        """Return the sentences of the document."""
        return example.sentences

    def collect_labels(self, examples: Sequence[Document]) -> list[str]:
        """Return the genres, if the recipe uses them; clusters are not labels."""
        genres = {example.genre for example in examples} - {""}
        return sorted(genres) if self.config.model.use_genre else []

    def gold_labels(self, example: Document) -> list[str]:
        """Return nothing: a genre is not predicted."""
        return []

    def build_head(self, widths: Widths, labels: list[str]) -> CorefHead:
        """Build the network."""
        return CorefHead(self.config.model, widths, self.config.data.max_tokens, len(labels))

    def make_features(
        self, examples: Sequence[Document], labels: list[str], *, with_gold: bool
    ) -> Features:
        """Return the number of sentences of each document, and the speaker of each, 0 if unknown.

        The genre of a document is its number in the labels, from 1; 0 if it is unknown. Gold
        `mentions` are row, first token, last token and cluster, from 1, without singletons.
        """
        speakers: list[int] = []
        mentions: list[tuple[int, int, int, int]] = []
        clusters = 0
        genre_numbers = {genre: number for number, genre in enumerate(labels, start=1)}
        for example in examples:
            rows = len(speakers)
            numbers = {"": 0}
            speakers += [numbers.setdefault(name, len(numbers)) for name in example.speakers]
            for cluster in drop_singletons(example.clusters):
                clusters += 1
                mentions += [(rows + m.sentence, m.start, m.end - 1, clusters) for m in cluster]
        features = {
            "rows": torch.tensor([len(example.sentences) for example in examples]),
            "speakers": torch.tensor(speakers, dtype=torch.long),
            "genres": torch.tensor([genre_numbers.get(example.genre, 0) for example in examples]),
        }
        if with_gold:
            features["mentions"] = torch.tensor(mentions, dtype=torch.long).reshape(-1, 4)
        return features

    def score(
        self, examples: Sequence[Document], predictions: Sequence[Clusters]
    ) -> dict[str, float]:
        """Score clusters of two or more mentions."""
        gold = [drop_singletons(example.clusters) for example in examples]
        return metric.score(
            gold, [drop_singletons(sort_clusters(clusters)) for clusters in predictions]
        )

    def count(self, example: Document, prediction: Clusters) -> tuple[float, ...]:
        """Return the counts of MUC, B3 and CEAFe."""
        gold, predicted = drop_singletons(example.clusters), sort_clusters(prediction)
        return metric.count_averaged(gold, drop_singletons(predicted))

    def score_counts(self, sums: Float[np.ndarray, "R C"]) -> Float[np.ndarray, " R"]:
        """Return the mean F1 of MUC, B3 and CEAFe."""
        return metric.average(sums)

    def format_text(self, example: Document, prediction: Clusters) -> str:
        """Put mentions in brackets, with the number of their cluster."""
        words = [list(sentence) for sentence in example.sentences]
        clusters = enumerate(sort_clusters(prediction), start=1)
        spans = [(mention, number) for number, cluster in clusters for mention in cluster]
        for (sentence, start, end), number in sorted(spans, key=_innermost):
            words[sentence][start] = f"[{words[sentence][start]}"
            words[sentence][end - 1] += f" {number}]"
        return " ".join(word for sentence in words for word in sentence)

    def to_dict(self, example: Document, prediction: Clusters) -> dict[str, Any]:
        """Return the sentences, and clusters of mentions with their words."""
        clusters = [
            [
                {**m._asdict(), "text": " ".join(example.sentences[m.sentence][m.start : m.end])}
                for m in cluster
            ]
            for cluster in sort_clusters(prediction)
        ]
        return {"sentences": example.sentences, "clusters": clusters}

    def prediction_lines(
        self, examples: Sequence[Document], predictions: Sequence[Clusters], suffix: str = ""
    ) -> Iterator[str]:
        """Yield CoNLL-U for `.conllu`, otherwise CoNLL-2012, which the reference scorer reads."""
        format_documents = format_conllu if suffix == ".conllu" else format_conll2012
        pairs = zip(examples, predictions, strict=True)
        return format_documents(
            replace(doc, clusters=sort_clusters(clusters)) for doc, clusters in pairs
        )


def _split_speaker(line: str) -> tuple[str, str]:
    """Return the speaker of a line, if it names one, and the rest of the line."""
    speaker, tab, speech = line.partition("\t")
    return (speaker, speech) if tab else ("", line)


def _innermost(span: tuple[Mention, int]) -> tuple[int, int]:
    """Return a sort key: shorter mentions first, so that brackets nest."""
    mention, number = span
    return mention.end - mention.start, number
