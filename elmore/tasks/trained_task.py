"""A task with its labels and its network: what `train` returns and `checkpoint` saves and loads."""

import itertools
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import nn

from elmore import atomic
from elmore.embed.jobs import layer_cache
from elmore.embed.jobs.layer_cache import CachedLayers
from elmore.errors import DataError
from elmore.tasks import results as task_results
from elmore.tasks.data.datasets import read_examples
from elmore.tasks.data.encode import UNKNOWN, BatchEncoder, EncodedBatch
from elmore.tasks.embedding.network import Embedding, LayerWeights, WordTable
from elmore.tasks.embedding.spec import OpenEmbedders
from elmore.tasks.layers.encoders import CharEncoder
from elmore.tasks.task import Features, Task, TaskHead
from elmore.text.characters import ByteAlphabet
from elmore.text.sentences import split_sentences
from elmore.text.tokenizers import penn
from elmore.train.loop import State, StepOutput
from elmore.train.prefetch import to_device

COUNTS_FORMAT = 1
TEST_COUNTS = "test_counts.json"
"""The counts of the test examples, in a run folder."""
_CHUNK_EXAMPLES, _CHUNK_TOKENS = 256, 16384  # predicted at a time: bounds the memory of the layers


class Batch(NamedTuple):
    """Encoded examples, ready for the network."""

    encoded: EncodedBatch
    features: Features


class TaskNetwork(nn.Module):
    """The embedding and the head of a task, with the signature that the training loop expects."""

    def __init__(self, embedding: Embedding, model: TaskHead) -> None:
        super().__init__()
        self.embedding, self.model = embedding, model

    def forward(self, batch: Batch, state: State | None = None) -> StepOutput:
        """Return the loss of a batch."""
        total, count = self.model(self._embed(batch), batch.features)
        # The loop divides by the count over all batches and processes of an update, so a penalty
        # that each multiplies by its own count is there exactly once.
        return StepOutput(total + self.embedding.penalty() * count, count, {})

    @torch.no_grad()
    def predict(self, batch: Batch) -> list[Any]:
        """Return a prediction for each example."""
        return self.model.predict(self._embed(batch), batch.features)

    @torch.no_grad()
    def predict_with_confidence(self, batch: Batch) -> list[tuple[Any, Any]]:
        """Return a prediction for each example with its probability, or those of its labels."""
        embedded = self._embed(batch)
        predictions = self.model.predict(embedded, batch.features)
        confidences = self.model.confidences(embedded, batch.features, predictions)
        return list(zip(predictions, confidences, strict=True))

    def _embed(self, batch: Batch) -> Any:  # noqa: ANN401 -- PackedTokens or PaddedTokens
        tokens = self.embedding(batch.encoded)
        return tokens if self.model.takes_packed else tokens.to_padded()


Offsets = list[tuple[int, int]]
"""Start and end of each token of a sentence, in characters of the text."""


class Prediction(NamedTuple):
    """What was predicted for a text."""

    example: Any
    prediction: Any
    line: str
    """The prediction on one line, for reading."""
    data: dict[str, Any]
    """The prediction as JSON data; beside `tokens` or `sentences` it has their `offsets`."""
    confidence: Any = None
    """The probability of a label, or of each tag; None for tasks without labels."""
    offsets: Offsets | None = None
    """Start and end of each token in the text, of all its sentences; None for tokenized text."""


@dataclass
class TrainedTask:
    """A task, its label set, its embedders and its network."""

    task: Task
    labels: list[str]
    words: list[str] | None
    """Words with a learned vector; None with pretrained vectors or a biLM."""
    embedders: OpenEmbedders
    encoder: BatchEncoder
    network: TaskNetwork
    scores: dict[str, float] = field(default_factory=dict)
    """Scores on the dev examples by which these weights were chosen."""

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return next(self.network.parameters()).device

    def layer_weights(self) -> dict[str, LayerWeights]:
        """Return the learned weights of the biLM's layers, at `input`, `output` or both."""
        return self.network.embedding.layer_weights()

    def evaluate(
        self,
        data: Path,
        *,
        cache_layers: bool = False,
        predictions: Path | None = None,
        counts: Path | None = None,
        results: Path | None = None,
    ) -> dict[str, float]:
        """Score the task on a file.

        Args:
            data: examples in a format of the task.
            cache_layers: keep the biLM's layers on disk, for the next time this file is scored.
            predictions: a file to write the predictions to, in the standard format of the task.
            counts: a JSON file to write the counts of each example to, for tests of significance;
                not written if the task has none.
            results: a JSON file to write the scores, the confusion of labels and the first errors
                to, for `elmore report`.

        Raises:
            DataError: the examples cannot be read, or a file cannot be written there.
        """
        for path in (predictions, counts, results):
            if path is not None:
                _check_output_path(path, data)
        task = self.task
        examples = read_examples(task, data, self.labels)
        predicted = list(self._predict_file(examples, cache_layers=cache_layers))
        if predictions is not None:
            lines = task.prediction_lines(examples, predicted, predictions.suffix)
            text = "".join(f"{line}\n" for line in lines)
            atomic.write(predictions, text.encode("utf-8", "replace"))
        if counts is not None:
            _write_counts(counts, task, examples, predicted)
        scores = task.score(examples, predicted)
        if results is not None:
            task_results.write(results, task_results.collect(task, scores, examples, predicted))
        return scores

    def predict(self, texts: Iterable[str], *, tokenized: bool = False) -> Iterator[Prediction]:
        """Predict for any number of texts, in their order.

        Args:
            texts: one per example; a task of pairs has a tab between the two parts.
            tokenized: tokens are separated by spaces already.

        Raises:
            DataError: a text is not an example of the task; its position is named, from 1.
        """
        if isinstance(texts, str):
            raise DataError(f"a list of texts is expected; pass [{texts[:30]!r}] for one")
        located = ((f"text {number}", text) for number, text in enumerate(texts, start=1))
        return self.predict_located(located, tokenized=tokenized)

    def predict_located(
        self, texts: Iterable[tuple[str, str]], *, tokenized: bool = False
    ) -> Iterator[Prediction]:
        """Predict for texts that come with their position, such as `stdin, line 3`."""
        task = self.task
        raw: deque[str | None] = deque()  # the texts of the examples in a chunk

        def examples() -> Iterator[Any]:
            for position, text in texts:
                example = _make_example(task, position, text, tokenized)
                raw.append(None if tokenized else text)
                yield example

        run = self.network.predict_with_confidence
        for chunk in self._chunks(examples()):
            results = self._predict(chunk, self._compute_layers(chunk), run)
            for example, (prediction, confidence) in zip(chunk, results, strict=True):
                line, data = (
                    task.format_text(example, prediction),
                    task.to_dict(example, prediction),
                )
                where = _find_offsets(raw.popleft(), task.sentences(example), data)
                offsets = None if where is None else list(itertools.chain.from_iterable(where))
                if where is not None and "sentences" in data:
                    data["offsets"] = where
                elif "tokens" in data and offsets is not None:
                    data["offsets"] = offsets
                yield Prediction(example, prediction, line, data, confidence, offsets)

    def predict_examples(
        self, examples: Sequence[Any], layers: CachedLayers | None = None
    ) -> list[Any]:
        """Predict for examples whose biLM layers are in `layers`, if there is a frozen biLM."""
        return self._predict(examples, layers, self.network.predict)

    def _predict(
        self,
        examples: Sequence[Any],
        layers: CachedLayers | None,
        run: Callable[[Batch], list[Any]],
    ) -> list[Any]:
        """Return what `run` gives for each example, in batches of examples of similar length."""
        sentences = [self.task.sentences(example) for example in examples]
        lengths = [self.task.length(example) for example in examples]
        order = np.argsort(lengths, kind="stable").tolist()
        size, training = self.task.config.batch_size, self.network.training
        predictions: dict[int, Any] = {}
        self.network.eval()
        try:
            for start in range(0, len(order), size):
                rows = order[start : start + size]
                batch = self.make_batch(
                    [examples[i] for i in rows], [sentences[i] for i in rows], layers
                )
                predicted = run(to_device(batch, self.device))
                predictions |= zip(rows, predicted, strict=True)
        finally:
            self.network.train(training)
        return [predictions[i] for i in range(len(examples))]

    def make_batch(
        self,
        examples: Sequence[Any],
        sentences: Iterable[list[list[str]]],
        layers: CachedLayers | None,
        *,
        with_gold: bool = False,
    ) -> Batch:
        """Encode examples, whose sentences were split already, on the CPU."""
        encoded = self.encoder.encode([s for texts in sentences for s in texts], layers)
        return Batch(encoded, self.task.make_features(examples, self.labels, with_gold=with_gold))

    def _predict_file(self, examples: Sequence[Any], *, cache_layers: bool) -> Iterator[Any]:
        elmo = self.encoder.frozen_elmo
        if elmo is not None:
            load = layer_cache.load_or_compute if cache_layers else layer_cache.load
            layers = load(elmo, self._sentences(examples))
            if layers is None:  # not on disk: compute and drop them chunk by chunk
                for chunk in self._chunks(examples):
                    yield from self.predict_examples(chunk, self._compute_layers(chunk))
                return
            yield from self.predict_examples(examples, layers)
        else:
            yield from self.predict_examples(examples)

    def _compute_layers(self, examples: Sequence[Any]) -> CachedLayers | None:
        elmo = self.encoder.frozen_elmo
        return None if elmo is None else layer_cache.compute(elmo, self._sentences(examples))

    def _sentences(self, examples: Iterable[Any]) -> Iterator[list[str]]:
        return (sentence for example in examples for sentence in self.task.sentences(example))

    def _chunks(self, examples: Iterable[Any]) -> Iterator[list[Any]]:
        """Group examples into lists whose layers fit into memory."""
        chunk: list[Any] = []
        num_tokens = 0
        for example in examples:
            chunk.append(example)
            num_tokens += sum(map(len, self.task.sentences(example)))
            if len(chunk) >= _CHUNK_EXAMPLES or num_tokens >= _CHUNK_TOKENS:
                yield chunk
                chunk, num_tokens = [], 0
        if chunk:
            yield chunk


def build(
    task: Task, labels: list[str], words: list[str] | None, embedders: OpenEmbedders
) -> TrainedTask:
    """Build a task with new weights, drawn from torch's random generator.

    Args:
        task: the task, with its recipe.
        labels: its label set.
        words: words that get a learned vector; None with pretrained vectors or a biLM.
        embedders: word vectors and biLM, if any.
    """
    config = task.config
    table, word_ids = None, None
    if embedders.vectors is not None:
        matrix = torch.from_numpy(embedders.vectors.matrix)
        if not config.words.freeze:
            matrix = matrix.clone()  # the loaded vectors must not change
        table = WordTable(matrix, freeze=config.words.freeze, dropout=0.0)
        word_ids = embedders.vectors.ids
    elif words is not None:
        vectors = torch.empty(max(1, len(words)), config.words.dim).uniform_(-0.1, 0.1)
        table = WordTable(vectors, freeze=False, dropout=config.words.dropout)
        word_ids = _Vocabulary(words)
    characters, alphabet = None, None
    if config.characters is not None:
        sizes = config.characters
        characters = CharEncoder(sizes.embedding_dim, sizes.num_filters, sizes.widths)
        alphabet = ByteAlphabet()
    embedding = Embedding(table, characters, embedders.elmo, config.elmo)
    encoder = BatchEncoder(word_ids, alphabet, embedders.elmo if config.elmo.freeze else None)
    network = TaskNetwork(embedding, task.build_head(embedding.widths, labels))
    return TrainedTask(task, labels, words, embedders, encoder, network)


class _Vocabulary:
    """Maps words to rows of a learned table."""

    def __init__(self, words: Sequence[str]) -> None:
        self._rows = {word: row for row, word in enumerate(words)}

    def __call__(self, tokens: Sequence[str]) -> Int[np.ndarray, " T"]:
        return np.array([self._rows.get(token, UNKNOWN) for token in tokens], dtype=np.int64)


def _make_example(task: Task, position: str, text: str, tokenized: bool) -> Any:  # noqa: ANN401
    try:
        return task.example_from_text(text, tokenized=tokenized)
    except DataError as error:
        raise DataError(f"{position}: {error}") from error


def _find_offsets(
    text: str | None, sentences: list[list[str]], data: Mapping[str, Any]
) -> list[Offsets] | None:
    """Return where the tokens of each sentence are in a text, if they are all of the text.

    A text is one sentence, or it was split if there are sentences in the JSON data.
    """
    if text is None:
        return None
    words, offsets = [], []
    for start, end in split_sentences(text) if "sentences" in data else [(0, len(text))]:
        tokens = penn(text[start:end])
        if tokens.words:
            words.append(tokens.words)
            offsets.append([(start + left, start + right) for left, right in tokens.offsets])
    return offsets if words == sentences else None


def _check_output_path(path: Path, data: Path) -> None:
    """Refuse a path that cannot be written, before anything is predicted."""
    if path.is_dir() or not path.parent.is_dir():
        raise DataError(f"{path}: expected the name of a file in an existing folder")
    if path.exists() and data.exists() and path.samefile(data):
        raise DataError(f"{path}: this is the file of examples; choose another name")


def _write_counts(path: Path, task: Task, examples: list[Any], predictions: list[Any]) -> None:
    counts = [task.count(*pair) for pair in zip(examples, predictions, strict=True)]
    if None in counts:
        return
    settings = {"format": COUNTS_FORMAT, "task": task.name, "metric": task.metric}
    text = json.dumps({**settings, "counts": counts}, separators=(",", ":"))
    atomic.write(path, f"{text}\n".encode())
