"""A linear probe per layer: how much of a word's tag a frozen vector tells.

The probe is a multinomial logistic regression on whitened vectors. What it can learn by heart
is shown by a control task (Hewitt and Liang, 2019): every word type gets one random tag, drawn from
the tags of the training text, and the same probe learns those. Selectivity is the accuracy on the
true tags less the accuracy on the random ones.

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
"""What is done, 0 to 1, and how many tokens or updates that was."""

_BATCH = 1024
_ROUNDS = 12  # the best of as many looks at dev is kept
_ROUND_STEPS = 20  # at least, so that a small text is learned too
_RATE = 0.05
_WEIGHT_DECAY = 3e-3
_CHUNK = 8192  # tokens in single precision at a time
_FLOOR = 1e-3  # of a variance, so that no direction of mere rounding is blown up


class Examples(NamedTuple):
    """Vectors and what is to be told from each."""

    vectors: Float[np.ndarray, "N D"]
    labels: Sequence[str]


class Splits(NamedTuple):
    """The text to learn from, to choose the best round by, and to be tested on."""

    train: list[TaggedSentence]
    dev: list[TaggedSentence]
    test: list[TaggedSentence]

    def tags(self) -> list[list[str]]:
        """Give the tags of each, one per token."""
        return [[tag for sentence in split for tag in sentence.tags] for split in self]

    def control_tags(self, seed: int) -> list[list[str]]:
        """Give every word type a tag of its own, drawn from those of the training text."""
        words = [[word for sentence in split for word in sentence.tokens] for split in self]
        types = list(dict.fromkeys(word for split in words for word in split))
        drawn = np.random.default_rng(seed).choice(self.tags()[0], size=len(types))
        tag_of = dict(zip(types, drawn.tolist(), strict=True))
        return [[tag_of[word] for word in split] for split in words]


@dataclass(frozen=True)
class Scores:
    """LayerWeights of tokens whose label was told."""

    dev: float
    test: float


@dataclass(frozen=True)
class LayerScores:
    """What the probe of one layer found."""

    layer: str
    test: float
    dev: float
    control: float | None = None

    @property
    def selectivity(self) -> float | None:
        """How much better than random tags the true ones were learned."""
        return None if self.control is None else self.test - self.control

    def row(self) -> dict[str, str | float]:
        """Give what was found as a row of a table."""
        row: dict[str, str | float] = {"layer": self.layer, "test": self.test, "dev": self.dev}
        if self.control is None or self.selectivity is None:
            return row
        return {**row, "control": self.control, "selectivity": self.selectivity}


def read(train: Path, dev: Path, test: Path, *, column: Literal["xpos", "upos"] = "xpos") -> Splits:
    """Read the three CoNLL-U files."""
    return Splits(*(pos.read_conllu(path, column=column) for path in (train, dev, test)))


def of_words(data: Splits, vectors: WordVectors) -> dict[str, list[np.ndarray]]:
    """Give the vectors of every token in word vectors, as their only layer."""
    return {
        "words": [
            np.concatenate([vectors.lookup(sentence.tokens) for sentence in split])
            for split in data
        ]
    }


def of_model(
    data: Splits, elmo: Embedder, layers: str = "all", progress: Progress | None = None
) -> dict[str, list[np.ndarray]]:
    """Give the vectors of every token in each layer, with "all" in their average too."""
    wanted = parse_layers(layers)
    check_layers(wanted, elmo.num_layers)
    names = [layers]
    if wanted == "all":
        names = [*map(str, range(elmo.num_layers)), "average"]
    sizes = [sum(len(sentence.tokens) for sentence in split) for split in data]
    found = [np.empty((len(names), size, elmo.width), np.float16) for size in sizes]
    done = 0
    for split, vectors in zip(data, found, strict=True):
        begin = 0
        for sentence in elmo.stream((one.tokens for one in split), layers=wanted):
            end = begin + len(sentence.tokens)
            if wanted == "all":
                vectors[:-1, begin:end] = sentence.vectors
                vectors[-1, begin:end] = sentence.vectors.mean(axis=0)
            else:
                vectors[0, begin:end] = sentence.vectors
            done, begin = done + end - begin, end
            if progress:
                progress(done / sum(sizes), done)
    return {name: [vectors[row] for vectors in found] for row, name in enumerate(names)}


def probe(
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

            scores.append(classify(*examples, seed=seed, device=device, progress=watch))
            finished += 1
        random = scores[1].test if control else None
        rows.append(LayerScores(layer, scores[0].test, scores[0].dev, random))
    return rows


def classify(
    train: Examples,
    dev: Examples,
    test: Examples,
    *,
    seed: int = 0,
    device: str | torch.device = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> Scores:
    """Fit a logistic regression to `train`; the round that is best on `dev` counts.

    The same seed gives the same scores. A label that `train` does not have is never told.
    """
    numbers = {label: number for number, label in enumerate(sorted(set(train.labels)))}
    learned, chosen, tested = (_Placed.of(split, numbers, device) for split in (train, dev, test))
    mean, whitener = _whitening(learned.vectors)
    weight = torch.zeros(len(mean), len(numbers), device=device, requires_grad=True)
    bias = torch.zeros(len(numbers), device=device, requires_grad=True)
    optimizer = torch.optim.AdamW([weight, bias], weight_decay=_WEIGHT_DECAY, fused=True)
    round_steps = max(_ROUND_STEPS, -(-len(train.labels) // _BATCH))
    num_steps = _ROUNDS * round_steps
    best, best_dev = _Plane(mean, whitener @ weight, bias), -1.0
    for step, rows in zip(range(num_steps), _batches(len(train.labels), seed), strict=False):
        optimizer.param_groups[0]["lr"] = _RATE * (1 - step / num_steps)
        rows = rows.to(device)
        scores = _Plane(mean, whitener @ weight, bias)(learned.vectors[rows])
        optimizer.zero_grad()
        functional.cross_entropy(scores, learned.labels[rows]).backward()
        optimizer.step()
        if (step + 1) % round_steps == 0:
            now = _Plane(mean, (whitener @ weight).detach(), bias.detach().clone())
            if (right := _accuracy(chosen, now)) > best_dev:
                best, best_dev = now, right
            if progress:
                progress(step + 1, num_steps)
    return Scores(dev=best_dev, test=_accuracy(tested, best))


def _batches(size: int, seed: int) -> Iterator[Int[Tensor, " B"]]:
    """Give the rows of batch after batch, each row once before any comes again."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(size, generator=generator).split(_BATCH)


class _Placed(NamedTuple):
    """Examples on a device; the vectors as they came, for half precision is half the memory."""

    vectors: Float[Tensor, "N D"]
    labels: Int[Tensor, " N"]

    @classmethod
    def of(
        cls, examples: Examples, numbers: dict[str, int], device: str | torch.device
    ) -> "_Placed":
        unknown = -1  # which no prediction is, so that it counts as wrong
        labels = [numbers.get(label, unknown) for label in examples.labels]
        vectors = torch.from_numpy(np.ascontiguousarray(examples.vectors))
        return cls(vectors.to(device), torch.tensor(labels, device=device))


def _whitening(vectors: Float[Tensor, "N D"]) -> tuple[Float[Tensor, " D"], Float[Tensor, "D D"]]:
    """Give the mean, and the matrix that makes what is left of the vectors even on all sides.

    Weights that are learned behind it get there some times faster, for the dimensions of word
    vectors go together. What never varies in training tells nothing, and is left out.
    """
    mean = vectors.mean(dim=0, dtype=torch.float64)
    covariance = torch.zeros(len(mean), len(mean), dtype=torch.float64, device=mean.device)
    for part in vectors.split(_CHUNK):
        rest = (part - mean).float()
        covariance += rest.T @ rest / len(vectors)
    deviation = covariance.diagonal().sqrt()
    scale = torch.where(deviation > 1e-6 * mean.abs(), 1 / deviation, 0.0)
    spread, directions = torch.linalg.eigh(scale[:, None] * covariance * scale)
    whitener = scale[:, None] * directions * (spread.clamp(min=0) + _FLOOR).rsqrt()
    return mean.float(), whitener.float()


class _Plane(NamedTuple):
    """What the probe is: a linear function of a vector for each label."""

    mean: Float[Tensor, " D"]
    weight: Float[Tensor, "D K"]
    bias: Float[Tensor, " K"]

    def __call__(self, vectors: Shaped[Tensor, "B D"]) -> Float[Tensor, "B K"]:
        return torch.addmm(self.bias, vectors.float() - self.mean, self.weight)


@torch.no_grad()
def _accuracy(split: _Placed, plane: _Plane) -> float:
    right = 0
    for vectors, labels in zip(*(part.split(_CHUNK) for part in split), strict=True):
        right += int((plane(vectors).argmax(dim=1) == labels).sum())
    return right / len(split.labels)
