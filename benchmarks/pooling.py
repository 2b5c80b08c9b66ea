"""Measure text vectors: tell SNLI's entailment pairs from shuffled ones.

    python benchmarks/pooling.py [--model english]

Uses the first 1,000 entailment pairs of the dev set ($ELMORE_DATA/tasks/snli), and pairs each
premise with the hypothesis of another pair too. Prints the area under the ROC curve of the cosine,
and how often the right hypothesis is the nearest of all 1,000. The pooling is fitted on other
premises.
"""

import argparse
import lzma
from typing import Literal, NamedTuple

import numpy as np
from data_folder import data_path

import elmore
from elmore.embed import pooling

PAIRS = 1000


class Learned(NamedTuple):
    """A pooling to learn."""

    weighted: bool
    remove: int


POOLS: list[tuple[str, Literal["mean", "max"] | Learned]] = [
    ("mean", "mean"),
    ("max", "max"),
    ("weighted, nothing removed", Learned(weighted=True, remove=0)),
    ("mean, mean and 3 directions removed", Learned(weighted=False, remove=3)),
    ("weighted, mean and 1 direction removed", Learned(weighted=True, remove=1)),
    ("weighted, mean and 3 directions removed (the default)", Learned(weighted=True, remove=3)),
    ("weighted, mean and 10 directions removed", Learned(weighted=True, remove=10)),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="english")
    args = parser.parse_args()
    with lzma.open(data_path("tasks/snli/snli_dev.tsv.xz"), "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    pairs = [(one.split(), two.split()) for label, one, two in rows if label == "entailment"]
    pairs, rest = pairs[:PAIRS], pairs[PAIRS:]
    used = {tuple(one) for one, _ in pairs}
    sample = [one for one in dict.fromkeys(tuple(one) for one, _ in rest) if one not in used]
    elmo = elmore.load(args.model)
    left, right, learned = (
        [(result.tokens, result.vectors) for result in elmo.embed(texts)]
        for texts in ([one for one, _ in pairs], [two for _, two in pairs], map(list, sample))
    )
    print(f"learned on {len(sample):,} other premises\n")
    print("| pooling | AUC | first of 1,000 |\n|---|---|---|")
    for name, how in POOLS:
        pool = how if isinstance(how, str) else pooling.learn(learned, **how._asdict())
        one, two = (
            unit(np.stack([pooling.pool(*text, pool) for text in texts])) for texts in (left, right)
        )
        report(name, one @ two.T)
    shared = np.array(
        [[len(set(b) & set(a)) / len(set(b)) for _, b in pairs] for a, _ in pairs], np.float64
    )
    report("*for comparison: share of the hypothesis's words found in the premise*", shared)


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def report(name: str, similar: np.ndarray) -> None:
    """Print how a matrix of similarities tells the diagonal from a shuffle of it."""
    true = np.diagonal(similar)
    false = similar[np.arange(len(similar)), np.roll(np.arange(len(similar)), 1)]
    above = (true[:, None] > false).mean() + (true[:, None] == false).mean() / 2
    first = (similar.argmax(axis=1) == np.arange(len(similar))).mean()
    print(f"| {name} | {above:.3f} | {first:.3f} |", flush=True)


if __name__ == "__main__":
    main()
