"""A linear probe per layer: how well a frozen vector predicts the tag of its word.

The probe is a multinomial logistic regression on whitened vectors. A control task (Hewitt and
Liang, 2019) measures how much it can memorize: every word type gets one random tag, drawn from the
tags of the training text, and the same probe learns those. Selectivity is the accuracy on the true
tags minus the accuracy on the random ones.

Shapes: N tokens of a text, D width of a vector, K tags.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn import functional

from elmore.embed.embedder import Embedder
from elmore.embed.outputs import check_layers, parse_layers
from elmore.tasks.data.columns import TaggedSentence
from elmore.tasks.embedding.word_vectors import WordVectors
from elmore.tasks.pos import data as pos

Progress = Callable[[float, int], None]
"""Called with the fraction done, 0 to 1, and the number of tokens or updates."""

_BATCH_SIZE = 1024
_NUM_EPOCHS = 12  # the best epoch on dev is kept
_MIN_EPOCH_STEPS = 20  # so that a small text is learned too
_LR = 0.05
_WEIGHT_DECAY = 3e-3
_CHUNK = 8192  # tokens converted to float32 at a time
_VARIANCE_FLOOR = 1e-3  # so that whitening does not amplify rounding errors


class Examples(NamedTuple):
    """Vectors and the label of each."""

    vectors: Float[np.ndarray, "N D"]
    labels: Sequence[str]


class Splits(NamedTuple):
    """Tagged sentences for training, for choosing the best epoch, and for testing."""

    train: list[TaggedSentence]
    dev: list[TaggedSentence]
    test: list[TaggedSentence]

    def tags(self) -> list[list[str]]:
        """Return the tags of each split, one per token."""
        return [[tag for sentence in split for tag in sentence.tags] for split in self]

    def control_tags(self, seed: int) -> list[list[str]]:
        """Return random tags: one per word type, drawn from the tags of the training text."""
        words = [[word for sentence in split for word in sentence.tokens] for split in self]
        types = list(dict.fromkeys(word for split in words for word in split))
        drawn = np.random.default_rng(seed).choice(self.tags()[0], size=len(types))
        tag_of = dict(zip(types, drawn.tolist(), strict=True))
        return [[tag_of[word] for word in split] for split in words]


@dataclass(frozen=True)
class Scores:
    """Accuracies, and the labels that are predicted for the test examples."""

    dev: float
    test: float
    predicted: list[str]


@dataclass(frozen=True)
class LayerScores:
    """Accuracies of one layer."""

    layer: str
    test: float
    dev: float
    control: float | None = None

    @property
    def selectivity(self) -> float | None:
        """Accuracy on the true tags minus accuracy on the random ones."""
        return None if self.control is None else self.test - self.control

    def row(self) -> dict[str, str | float]:
        """Return the scores as a table row."""
        row: dict[str, str | float] = {"layer": self.layer, "test": self.test, "dev": self.dev}
        if self.control is None or self.selectivity is None:
            return row
        return {**row, "control": self.control, "selectivity": self.selectivity}


def read_splits(
    train: Path, dev: Path, test: Path, *, column: Literal["xpos", "upos"] = "xpos"
) -> Splits:
    """Read the three CoNLL-U files."""
    return Splits(*(pos.read_conllu(path, column=column) for path in (train, dev, test)))


def word_vector_features(data: Splits, vectors: WordVectors) -> dict[str, list[np.ndarray]]:
    """Return the word vector of every token, as the only layer "words"."""
    return {
        "words": [
            np.concatenate([vectors.lookup(sentence.tokens) for sentence in split])
            for split in data
        ]
    }


def layer_features(
    data: Splits, elmo: Embedder, layers: str = "all", progress: Progress | None = None
) -> dict[str, list[np.ndarray]]:
    """Return the vectors of every token in the chosen layers; "all" adds their average."""
    choice = parse_layers(layers)
    check_layers(choice, elmo.num_layers)
    names = [layers]
    if choice == "all":
        names = [*map(str, range(elmo.num_layers)), "average"]
    sizes = [sum(len(sentence.tokens) for sentence in split) for split in data]
    features = [np.empty((len(names), size, elmo.width), np.float16) for size in sizes]
    done = 0
    for split, vectors in zip(data, features, strict=True):
        begin = 0
        for sentence in elmo.stream((one.tokens for one in split), layers=choice):
            end = begin + len(sentence.tokens)
            if choice == "all":
                vectors[:-1, begin:end] = sentence.vectors
                vectors[-1, begin:end] = sentence.vectors.mean(axis=0)
            else:
                vectors[0, begin:end] = sentence.vectors
            done, begin = done + end - begin, end
            if progress:
                progress(done / sum(sizes), done)
    return {name: [vectors[row] for vectors in features] for row, name in enumerate(names)}


def probe_layers(
    data: Splits,
    layers: dict[str, list[np.ndarray]],
    *,
    control: bool = True,
    seed: int = 0,
    device: str | torch.device = "cpu",
    progress: Progress | None = None,
) -> list[LayerScores]:
    """Train one classifier per layer, and with `control` a second one on random tags."""
    tasks = [data.tags(), data.control_tags(seed)] if control else [data.tags()]
    rows, finished = [], 0
    for layer, vectors in layers.items():
        scores = []
        for labels in tasks:
            examples = [Examples(*pair) for pair in zip(vectors, labels, strict=True)]

            def watch(step: int, num_steps: int, finished: int = finished) -> None:
                done = finished * num_steps + step
                if progress:
                    progress(done / (num_steps * len(layers) * len(tasks)), done)

            scores.append(fit_classifier(*examples, seed=seed, device=device, progress=watch))
            finished += 1
        random = scores[1].test if control else None
        rows.append(LayerScores(layer, scores[0].test, scores[0].dev, random))
    return rows


def fit_classifier(
    train: Examples,
    dev: Examples,
    test: Examples,
    *,
    seed: int = 0,
    device: str | torch.device = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> Scores:
    """Fit a logistic regression to `train` and keep the epoch that is best on `dev`.

    The same seed gives the same scores. A label that is not in `train` is never predicted.
    """
    label_ids = {label: number for number, label in enumerate(sorted(set(train.labels)))}
    train_set, dev_set, test_set = (
        _DeviceExamples.encode(split, label_ids, device) for split in (train, dev, test)
    )
    mean, whitener = _whitening(train_set.vectors)
    weight = torch.zeros(len(mean), len(label_ids), device=device, requires_grad=True)
    bias = torch.zeros(len(label_ids), device=device, requires_grad=True)
    optimizer = torch.optim.AdamW([weight, bias], weight_decay=_WEIGHT_DECAY, fused=True)
    epoch_steps = max(_MIN_EPOCH_STEPS, -(-len(train.labels) // _BATCH_SIZE))
    num_steps = _NUM_EPOCHS * epoch_steps
    best, best_dev = _LinearClassifier(mean, whitener @ weight, bias), -1.0
    for step, rows in zip(range(num_steps), _batches(len(train.labels), seed), strict=False):
        optimizer.param_groups[0]["lr"] = _LR * (1 - step / num_steps)
        rows = rows.to(device)
        logits = _LinearClassifier(mean, whitener @ weight, bias)(train_set.vectors[rows])
        optimizer.zero_grad()
        functional.cross_entropy(logits, train_set.labels[rows]).backward()
        optimizer.step()
        if (step + 1) % epoch_steps == 0:
            now = _LinearClassifier(mean, (whitener @ weight).detach(), bias.detach().clone())
            if (
                accuracy := float((_predict(dev_set, now) == dev_set.labels).double().mean())
            ) > best_dev:
                best, best_dev = now, accuracy
            if progress:
                progress(step + 1, num_steps)
    labels, predicted = list(label_ids), _predict(test_set, best)
    test_accuracy = int((predicted == test_set.labels).sum()) / len(test.labels)
    return Scores(best_dev, test_accuracy, [labels[label] for label in predicted.tolist()])


def _batches(size: int, seed: int) -> Iterator[Int[Tensor, " B"]]:
    """Yield shuffled batches of row numbers, epoch after epoch."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(size, generator=generator).split(_BATCH_SIZE)


class _DeviceExamples(NamedTuple):
    """Examples on a device; vectors keep their dtype, because float16 needs half the memory."""

    vectors: Float[Tensor, "N D"]
    labels: Int[Tensor, " N"]

    @classmethod
    def encode(
        cls, examples: Examples, label_ids: dict[str, int], device: str | torch.device
    ) -> "_DeviceExamples":
        unknown = -1  # never predicted, so it counts as an error
        labels = [label_ids.get(label, unknown) for label in examples.labels]
        vectors = torch.from_numpy(np.ascontiguousarray(examples.vectors))
        return cls(vectors.to(device), torch.tensor(labels, device=device))


def _whitening(vectors: Float[Tensor, "N D"]) -> tuple[Float[Tensor, " D"], Float[Tensor, "D D"]]:
    """Return the mean, and the matrix that whitens the centred vectors.

    The dimensions of word vectors are correlated; weights on whitened vectors converge several
    times faster. Dimensions that are constant in training are set to zero.
    """
    mean = vectors.mean(dim=0, dtype=torch.float64)
    covariance = torch.zeros(len(mean), len(mean), dtype=torch.float64, device=mean.device)
    for part in vectors.split(_CHUNK):
        centred = (part - mean).float()
        covariance += centred.T @ centred / len(vectors)
    deviation = covariance.diagonal().sqrt()
    scale = torch.where(deviation > 1e-6 * mean.abs(), 1 / deviation, 0.0)
    eigenvalues, eigenvectors = torch.linalg.eigh(scale[:, None] * covariance * scale)
    whitener = scale[:, None] * eigenvectors * (eigenvalues.clamp(min=0) + _VARIANCE_FLOOR).rsqrt()
    return mean.float(), whitener.float()


class _LinearClassifier(NamedTuple):
    """One linear function of the centred vector per label."""

    mean: Float[Tensor, " D"]
    weight: Float[Tensor, "D K"]
    bias: Float[Tensor, " K"]

    def __call__(self, vectors: Shaped[Tensor, "B D"]) -> Float[Tensor, "B K"]:
        return torch.addmm(self.bias, vectors.float() - self.mean, self.weight)


@torch.no_grad()
def _predict(examples: _DeviceExamples, classifier: _LinearClassifier) -> Int[Tensor, " N"]:
    parts = examples.vectors.split(_CHUNK)
    return torch.cat([classifier(vectors).argmax(dim=1) for vectors in parts])
