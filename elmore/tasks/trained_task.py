"""A task with all it takes to solve it: recipe, labels, how it reads, and the network."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from elmore.embed.jobs.layer_cache import CachedLayers
from elmore.tasks.data.encode import UNKNOWN, Read, Reader
from elmore.tasks.embedding.network import Embedded, Embedding, Tokens, WordTable
from elmore.tasks.embedding.spec import Sources
from elmore.tasks.layers.encoders import CharEncoder
from elmore.tasks.task import Features, Task, TaskConfig, TaskModel
from elmore.text.characters import ByteAlphabet
from elmore.train.loop import State, StepOutput
from elmore.train.prefetch import to_device


class Batch(NamedTuple):
    """Some examples, ready for the network."""

    read: Read
    features: Features


class Learner(nn.Module):
    """The embedding and the task's own network, as the engine trains them."""

    def __init__(self, embedding: Embedding, model: TaskModel) -> None:
        super().__init__()
        self.embedding, self.model = embedding, model

    def forward(self, batch: Batch, carried: State | None = None) -> StepOutput:
        """Give the loss of a batch."""
        total, count = self.model(self._embedded(batch), batch.features)
        # The engine divides by the count over all batches and processes of an update. So a penalty
        # that is multiplied by each one's count is there once an update, however it is divided.
        return StepOutput(total + self.embedding.penalty() * count, count, {})

    @torch.no_grad()
    def predict(self, batch: Batch) -> list[Any]:
        """Give a prediction for each example."""
        return self.model.predict(self._embedded(batch), batch.features)

    def _embedded(self, batch: Batch) -> Embedded | Tokens:
        tokens = self.embedding(batch.read)
        return tokens if self.model.takes_tokens else tokens.side_by_side()


@dataclass
class Solver:
    """What `train` makes and `evaluate` and `predict` use."""

    task: Task
    config: TaskConfig
    labels: list[str]
    words: list[str] | None
    """Those with a learned vector; None where vectors came ready-made or not at all."""
    sources: Sources
    reader: Reader
    learner: Learner
    scores: dict[str, float]
    """On the held-out examples it was chosen by."""

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.learner.parameters()).device

    def sentences(self, examples: Sequence[Any]) -> list[list[str]]:
        """Give the sentences of some examples, one after another."""
        return [sentence for example in examples for sentence in self.task.sentences(example)]

    def batch(
        self, examples: Sequence[Any], layers: CachedLayers | None, *, truth: bool = False
    ) -> Batch:
        """Make a batch, on the CPU."""
        read = self.reader.read(self.sentences(examples), layers)
        return Batch(read, self.task.features(examples, self.labels, truth=truth))

    def predict(self, examples: Sequence[Any], layers: CachedLayers | None) -> list[Any]:
        """Predict for examples whose layers are there, in their order."""
        training = self.learner.training
        found: dict[int, Any] = {}
        order = np.argsort([self._length(example) for example in examples], kind="stable").tolist()
        self.learner.eval()
        try:
            for start in range(0, len(order), self.config.batch_size):
                chosen = order[start : start + self.config.batch_size]
                batch = self.batch([examples[i] for i in chosen], layers)
                predictions = self.learner.predict(to_device(batch, self.device))
                found |= zip(chosen, predictions, strict=True)
        finally:
            self.learner.train(training)
        return [found[i] for i in range(len(examples))]

    def _length(self, example: Any) -> int:  # noqa: ANN401 -- of whatever task
        return max(map(len, self.task.sentences(example)), default=0)


def build(
    task: Task, config: TaskConfig, labels: list[str], words: list[str] | None, sources: Sources
) -> Solver:
    """Put a solver together, with new weights."""
    table, ids = None, None
    if sources.vectors is not None:
        matrix = torch.from_numpy(sources.vectors.matrix)
        if not config.words.freeze:
            matrix = matrix.clone()  # what was loaded stays as it is
        table = WordTable(matrix, freeze=config.words.freeze, dropout=0.0)
        ids = sources.vectors.ids
    elif words is not None:
        vectors = torch.empty(max(1, len(words)), config.words.dim).uniform_(-0.1, 0.1)
        table = WordTable(vectors, freeze=False, dropout=config.words.dropout)
        ids = _Rows(words)
    characters, alphabet = None, None
    if config.characters is not None:
        sizes = config.characters
        characters = CharEncoder(sizes.embedding_dim, sizes.num_filters, sizes.width)
        alphabet = ByteAlphabet()
    embedding = Embedding(table, characters, sources.elmo, config.elmo)
    reader = Reader(ids, alphabet, sources.elmo if config.elmo.freeze else None)
    learner = Learner(embedding, task.model(embedding.widths, labels))
    return Solver(task, config, labels, words, sources, reader, learner, {})


class _Rows:
    """Words as rows of a table."""

    def __init__(self, words: Sequence[str]) -> None:
        self._rows = {word: row for row, word in enumerate(words)}

    def __call__(self, tokens: Sequence[str]) -> Int[np.ndarray, " T"]:
        found = [self._rows.get(token, UNKNOWN) for token in tokens]
        return np.array(found, dtype=np.int64)


def trained_tensors(solver: Solver) -> dict[str, Tensor]:
    """Give what training has made: nothing of a frozen biLM or of ready-made vectors."""
    return {name: tensor.contiguous() for name, tensor in solver.learner.state_dict().items()}
