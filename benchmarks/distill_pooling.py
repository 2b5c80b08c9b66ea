"""Learn a pooling from a sentence encoder, and add it to a model folder.

    python benchmarks/distill_pooling.py sample --snli snli_train.tsv.xz --corpus train-*.txt.xz \
        --exclude sts-*.csv SICK_*.txt STS.input.*.txt -o sentences.txt
    python benchmarks/distill_pooling.py teach sentences.txt --teacher all-MiniLM-L6-v2 -o teacher
    python benchmarks/distill_pooling.py learn MODEL sentences.txt teacher --dev sts-dev.csv

`sample` takes sentences at random, but none of the evaluation sets. `teach` encodes them with a
model of sentence-transformers, in parts: it can be stopped and run again, and `learn` uses the
parts that are there. `learn` fits the attention and the projection of a `TextPooling` to the
teacher's vectors, on the frozen token vectors of the model: every sentence's vector to the
teacher's, and the cosines within a batch to the teacher's cosines (mean squared error, and the
Kullback-Leibler divergence of their softmax). It prints Spearman's correlation on the dev pairs
after each epoch, as stored, and adds the pooling to the folder without touching other files.

Shapes: N sentences, B of a batch, D width of all layers, K pooled width.
"""

import argparse
import lzma
import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import elmore
from elmore.embed.pooling import pool
from elmore.probe.cosine import normalize
from elmore.probe.estimates import spearman
from elmore.probe.suite.sentence_pairs import read_sts_file
from elmore.text.sentences import split_sentences
from elmore.weights import folder, pretrained
from elmore.weights.pooling import TextPooling
from elmore.weights.storage import quantize_rows

PART = 5000  # sentences of a part of the teacher's vectors
WORDS = range(3, 31)  # of a sentence
TEMPERATURE = 0.05
BATCH = 256
RIDGE = 3e-4
MEAN_SENTENCES = 5000  # from which mean and deviation are computed


def sample(args: argparse.Namespace) -> None:
    """Write sentences at random from SNLI and from a corpus."""
    rng = random.Random(args.seed)
    excluded = {
        _letters(field)
        for path in args.exclude
        for line in path.read_text("utf-8", errors="replace").splitlines()
        for field in line.split("\t")
    }

    def choose(candidates: Iterator[str], num: int) -> list[str]:
        kept = dict.fromkeys(" ".join(text.split()) for text in candidates)
        new = [s for s in kept if len(s.split()) in WORDS and _letters(s) not in excluded]
        return rng.sample(new, min(num, len(new)))

    captions = choose((s for path in args.snli for s in _snli(path)), args.snli_sentences)
    per_file = args.corpus_sentences // max(1, len(args.corpus))
    prose = [s for path in args.corpus for s in choose(_prose(path, rng), per_file)]
    sentences = captions + prose
    rng.shuffle(sentences)
    args.out.write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")
    print(f"{len(captions):,} sentences of SNLI, {len(prose):,} of the corpus: {args.out}")


def _letters(text: str) -> str:
    return re.sub(r"\W+", "", text.lower())


def _snli(path: Path) -> Iterator[str]:
    """Yield the premises and hypotheses of a TSV file with a header."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        next(file)
        for line in file:
            yield from line.rstrip("\n").split("\t")[1:3]


def _prose(path: Path, rng: random.Random) -> Iterator[str]:
    """Yield a sentence of every eighth paragraph."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            paragraph = line.strip()
            if rng.random() < 1 / 8 and (spans := split_sentences(paragraph)):
                start, end = rng.choice(spans)
                yield paragraph[start:end]


def teach(args: argparse.Namespace) -> None:
    """Write the teacher's vectors in parts; a part that exists is kept."""
    from sentence_transformers import SentenceTransformer

    teacher = SentenceTransformer(args.teacher, device="cpu")
    sentences = _read_sentences(args.sentences)
    args.out.mkdir(parents=True, exist_ok=True)
    for start in range(0, len(sentences), PART):
        path = args.out / f"{start:07}.npy"
        if not path.exists():
            vectors = teacher.encode(sentences[start : start + PART], normalize_embeddings=True)
            np.save(path, vectors.astype(np.float16))
            print(f"{start + len(vectors):,} of {len(sentences):,}", flush=True)


def _read_sentences(path: Path) -> list[str]:
    return path.read_text("utf-8").split("\n")[:-1]


def _read_teacher(path: Path) -> Tensor:
    """Return the vectors of the parts up to the first that is missing."""
    parts: list[np.ndarray] = []
    while (part := path / f"{sum(map(len, parts)):07}.npy").exists():
        parts.append(np.load(part, allow_pickle=False))
    return torch.from_numpy(np.concatenate(parts).astype(np.float32))


class Student(nn.Module):
    """The pooling in training, on standardized vectors."""

    def __init__(self, mean: Tensor, deviation: Tensor, width: int) -> None:
        super().__init__()
        self.mean, self.deviation = mean, deviation
        self.attention = nn.Parameter(torch.zeros(len(mean)))
        self.projection = nn.Parameter(torch.zeros(width, len(mean)))
        self.bias = nn.Parameter(torch.zeros(width))

    def average(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Return the weighted average of each sentence (B, D)."""
        vectors = (vectors.float() - self.mean) / self.deviation
        sentence = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        weights = (vectors @ self.attention).clamp(-10, 10).exp()[:, None]
        totals = torch.zeros(len(lengths), 1).index_add(0, sentence, weights)
        sums = torch.zeros(len(lengths), vectors.shape[1]).index_add(0, sentence, weights * vectors)
        return sums / totals

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Return the pooled vectors (B, K)."""
        return self.average(vectors, lengths) @ self.projection.T + self.bias

    def to_pooling(self, origin: dict[str, str]) -> TextPooling:
        """Return the pooling as it is stored: the projection in int8, the bias in the mean."""
        projection = self.projection.detach() / self.deviation
        numbers, scales = quantize_rows(projection)
        rounded = numbers.float() * scales.float()[:, None]
        # rounded @ (average - mean) = rounded @ average + constant
        constant = self.bias.detach() - projection @ self.mean
        shift = torch.linalg.lstsq(rounded, -constant[:, None]).solution[:, 0]
        return TextPooling(
            mean=shift.numpy().astype(np.float32),
            components=np.zeros((0, len(self.mean)), np.float32),
            attention=(self.attention.detach() / self.deviation).numpy(),
            projection=numbers.numpy(),
            scales=scales.numpy(),
            all_layers=True,
            truncatable=True,
            origin=origin,
        )


def learn(args: argparse.Namespace) -> None:
    """Learn a pooling for a model, and add it to its folder."""
    torch.manual_seed(args.seed)
    start = time.perf_counter()
    model = pretrained.model_folder(args.model)
    elmo = elmore.load(model, precision="fast", device="cpu")
    teacher = _read_teacher(args.teacher)[: args.sentences_used]
    sentences = _read_sentences(args.sentences)[: len(teacher)]
    pairs = read_sts_file(args.dev)
    dev = dict.fromkeys(sentence for pair in pairs for sentence in pair[:2])
    dev_vectors = list(elmo.embed(map(list, dev), layers="all"))
    gold = np.array([pair.similarity for pair in pairs])

    def score(pooling: TextPooling) -> float:
        pooled = [pool(text.tokens, text.vectors, pooling) for text in dev_vectors]
        vectors = dict(zip(dev, normalize(np.stack(pooled)), strict=True))
        cosines = [float(vectors[one] @ vectors[two]) for one, two, _ in pairs]
        return 100 * spearman(np.array(cosines), gold)

    origin = {
        "learned from": f"{len(sentences):,} sentences of {args.text}",
        "teacher": args.teacher_name,
    }
    texts = elmo.stream(sentences, layers="all", dtype="float16")
    embedded = [torch.from_numpy(np.concatenate(list(text.vectors), axis=1)) for text in texts]
    print(f"{len(embedded):,} sentences embedded, {time.perf_counter() - start:.0f} s", flush=True)
    pooling = _fit(embedded, teacher, args, score).to_pooling(origin)
    folder.add_pooling(model, args.name, pooling)
    size = (model / folder.POOLINGS).stat().st_size
    print(f"{model / folder.POOLINGS}: {size:,} bytes, {time.perf_counter() - start:.0f} s")


def _fit(
    embedded: list[Tensor],
    teacher: Tensor,
    args: argparse.Namespace,
    score: Callable[[TextPooling], float],
) -> Student:
    """Train a student: least squares first, then gradient steps; print the dev score."""
    some = torch.cat(embedded[:MEAN_SENTENCES]).float()
    student = Student(some.mean(dim=0), some.std(dim=0), args.width)
    _, directions = torch.linalg.eigh(teacher.T @ teacher)
    strongest_first = directions[:, -args.width :].flip(1)  # so that vectors can be truncated
    targets = functional.normalize(teacher @ strongest_first, dim=1)  # (N, K)
    lengths = torch.tensor([len(vectors) for vectors in embedded])
    usable = lengths.nonzero()[:, 0]

    def batch(rows: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat([embedded[row] for row in rows.tolist()]), lengths[rows]

    with torch.no_grad():
        means = torch.cat([student.average(*batch(rows)) for rows in usable.split(BATCH)])
        inputs = torch.cat([means, torch.ones(len(means), 1)], dim=1)
        ridge = RIDGE * len(means) * torch.eye(inputs.shape[1])
        solution = torch.linalg.solve(inputs.T @ inputs + ridge, inputs.T @ targets[usable])
        student.projection.copy_(solution[:-1].T)
        student.bias.copy_(solution[-1])
    print(f"least squares: dev {score(student.to_pooling({})):.1f}", flush=True)
    optimizer = torch.optim.Adam(student.parameters(), lr=args.lr)
    per_epoch = len(usable) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, args.lr, total_steps=args.epochs * per_epoch + 1, pct_start=0.1
    )
    for epoch in range(args.epochs):
        losses = []
        for rows in usable[torch.randperm(len(usable))].split(BATCH)[:per_epoch]:
            pooled = functional.normalize(student(*batch(rows)), dim=1)
            loss = _loss(pooled, targets[rows], teacher[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        dev = score(student.to_pooling({}))
        print(f"epoch {epoch + 1}: loss {np.mean(losses):.3f}, dev {dev:.1f}", flush=True)
    return student


def _loss(pooled: Tensor, targets: Tensor, teacher: Tensor) -> Tensor:
    """Return the distance from the teacher's vectors, and from its cosines within the batch."""
    found, wanted = pooled @ pooled.T, teacher @ teacher.T  # (B, B)
    itself = torch.eye(len(pooled), dtype=torch.bool)
    log_found, log_wanted = (
        (cosines / TEMPERATURE).masked_fill(itself, -1e4).log_softmax(dim=1)
        for cosines in (found, wanted)
    )
    divergence = functional.kl_div(log_found, log_wanted, reduction="batchmean", log_target=True)
    squared = (found - wanted)[~itself].square().mean()
    return (1 - (pooled * targets).sum(dim=1)).mean() + divergence + 10 * squared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    steps = parser.add_subparsers(required=True)
    step = steps.add_parser("sample")
    step.set_defaults(run=sample)
    step.add_argument("--snli", type=Path, nargs="*", default=[])
    step.add_argument("--corpus", type=Path, nargs="*", default=[])
    step.add_argument("--exclude", type=Path, nargs="*", default=[])
    step.add_argument("--snli-sentences", type=int, default=30_000)
    step.add_argument("--corpus-sentences", type=int, default=30_000)
    step.add_argument("-o", "--out", type=Path, required=True)
    step = steps.add_parser("teach")
    step.set_defaults(run=teach)
    step.add_argument("sentences", type=Path)
    step.add_argument("--teacher", required=True, help="a name or folder of sentence-transformers")
    step.add_argument("-o", "--out", type=Path, required=True)
    step = steps.add_parser("learn")
    step.set_defaults(run=learn)
    step.add_argument("model", type=Path, help="a model folder")
    step.add_argument("sentences", type=Path)
    step.add_argument("teacher", type=Path, help="folder written by `teach`")
    step.add_argument("--dev", type=Path, required=True, help="sts-dev.csv")
    step.add_argument("--name", default="minilm")
    step.add_argument("--teacher-name", default="all-MiniLM-L6-v2 (Apache-2.0)")
    step.add_argument("--text", default="SNLI (CC BY-SA 4.0) and of open English text")
    step.add_argument("--sentences-used", type=int, default=None)
    step.add_argument("--width", type=int, default=256)
    step.add_argument("--epochs", type=int, default=6)
    step.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
