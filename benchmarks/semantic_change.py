"""Measure how well vectors tell uses of a word apart, and how much a word changed.

    python benchmarks/semantic_change.py dwug_en [--model english] [--vectors FILE] [--json FILE]

DWUG EN (Schlechtweg et al., 2021 and 2024; the folder has `data` and `stats` of version 3.0.0): 46
lemmas with some 100 uses from 1810-1860 and from 1960-2010, and pairs of uses that people judged
from 1 (unrelated) to 4 (identical). Spearman's correlation, by layer:

- of the cosine of two uses with the median judgement of the pair, judgements of 0 (cannot decide)
  left out; over all pairs, and as the mean of the lemmas;
- of the measures of `elmore change` with the gold graded change of the lemma, which is the
  Jensen-Shannon distance of its sense clusters as people made them.

The intervals are of 1,000 bootstrap resamples of the lemmas.
"""

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import elmore
from elmore.embed.outputs import LayerChoice
from elmore.probe.change.corpora import Use
from elmore.probe.change.journal import WordCount
from elmore.probe.change.study import measure_word
from elmore.probe.cosine import normalize
from elmore.probe.estimates import Estimate, spearman

RESAMPLES = 1000


class Lemma(NamedTuple):
    """The uses of a lemma, and what people say about them."""

    name: str
    old: list[Use]
    new: list[Use]
    pairs: np.ndarray
    """Numbers of two uses, old ones first, and the median judgement: (P, 3)."""
    graded_change: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="dwug_en of version 3.0.0")
    parser.add_argument("--model", default="english")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--vectors", type=Path, help="keep the vectors of all uses here (.npy)")
    parser.add_argument("--json", type=Path, help="write the scores here")
    options = parser.parse_args()
    lemmas = read_lemmas(options.folder)
    names, vectors = embed(lemmas, options)
    num_uses, num_pairs = len(vectors), sum(len(lemma.pairs) for lemma in lemmas)
    print(f"{len(lemmas)} lemmas, {num_uses} uses, {num_pairs} pairs, {options.model}")
    results = {name: score_layer(lemmas, vectors[:, number]) for number, name in enumerate(names)}
    print_table(results)
    if options.json:
        content = {"model": options.model, "uses": num_uses, "pairs": num_pairs, "layers": results}
        options.json.write_text(json.dumps(content, indent=1) + "\n")


def read_lemmas(folder: Path) -> list[Lemma]:
    gold = {
        row["lemma"]: float(row["change_graded"])
        for row in read_table(folder / "stats/opt/stats_groupings.csv")
    }
    return [read_lemma(path, gold[path.name]) for path in sorted((folder / "data").iterdir())]


def read_lemma(path: Path, graded_change: float) -> Lemma:
    periods: dict[str, list[tuple[str, Use]]] = {"1": [], "2": []}
    for row in read_table(path / "uses.csv"):
        tokens = row["context_tokenized"].split(" ")
        use = Use(tokens, int(row["indexes_target_token_tokenized"]), 0)
        periods[row["grouping"]].append((row["identifier"], use))
    numbers = {name: i for i, (name, _) in enumerate(periods["1"] + periods["2"])}
    judged = defaultdict(list)
    for row in read_table(path / "judgments.csv"):
        if float(row["judgment"]) > 0:
            pair = sorted(numbers[row[f"identifier{side}"]] for side in (1, 2))
            judged[tuple(pair)].append(float(row["judgment"]))
    pairs = [(*pair, np.median(judgments)) for pair, judgments in judged.items()]
    old, new = ([use for _, use in periods[period]] for period in ("1", "2"))
    return Lemma(path.name, old, new, np.array(pairs), graded_change)


def read_table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def embed(lemmas: list[Lemma], options: argparse.Namespace) -> tuple[list[str], np.ndarray]:
    """Return the names of the layers, and the vector of each use in each of them: (N, L, D)."""
    model = elmore.load(options.model, device=options.device)
    layers: list[LayerChoice] = [*range(model.num_layers), "average", "cloze"]
    if model.whitening:
        layers.append("whitened")
    names = [str(layer) for layer in layers]
    if options.vectors and options.vectors.exists():
        return names, np.load(options.vectors)
    uses = [use for lemma in lemmas for use in (*lemma.old, *lemma.new)]
    vectors = np.zeros((len(uses), len(layers), model.width), np.float32)
    texts = model.stream((use.tokens for use in uses), layers=layers)
    for number, (use, text) in enumerate(zip(uses, texts, strict=True)):
        vectors[number] = text.vectors[:, use.position]
    if options.vectors:
        np.save(options.vectors, vectors)
    return names, vectors


def score_layer(lemmas: list[Lemma], vectors: np.ndarray) -> dict[str, dict[str, float]]:
    cosines, measures, begin = [], defaultdict(list), 0
    for lemma in lemmas:
        middle = begin + len(lemma.old)
        end = middle + len(lemma.new)
        units = normalize(vectors[begin:end])
        first, second = lemma.pairs[:, :2].astype(int).T
        cosines.append((units[first] * units[second]).sum(axis=1))
        count = WordCount(word=lemma.name, old=len(lemma.old), new=len(lemma.new))
        change = measure_word(
            count, lemma.old, lemma.new, vectors[begin:middle], vectors[middle:end]
        )
        for name in ("apd", "prt", "jsd"):
            measures[name].append(getattr(change.scores, name).value)
        begin = end
    medians = [lemma.pairs[:, 2] for lemma in lemmas]
    gold = np.array([lemma.graded_change for lemma in lemmas])
    by_lemma = np.array([spearman(*pair) for pair in zip(cosines, medians, strict=True)])
    scores = {
        "pairs": estimate(lambda rows: spearman(join(cosines, rows), join(medians, rows)), lemmas),
        "pairs_by_lemma": estimate(lambda rows: by_lemma[rows].mean(), lemmas),
    }
    for name, values in measures.items():
        column = np.array(values)
        scores[name] = estimate(lambda rows, c=column: spearman(c[rows], gold[rows]), lemmas)
    return {name: one._asdict() for name, one in scores.items()}


def join(parts: list[np.ndarray], rows: np.ndarray) -> np.ndarray:
    return np.concatenate([parts[row] for row in rows])


def estimate(score: Callable[[np.ndarray], float], lemmas: list[Lemma]) -> Estimate:
    generator = np.random.default_rng(0)
    size = len(lemmas)
    drawn = [float(score(generator.integers(size, size=size))) for _ in range(RESAMPLES)]
    low, high = np.quantile(drawn, (0.025, 0.975)).tolist()
    return Estimate(float(score(np.arange(size))), low, high, size)


def print_table(results: dict[str, dict[str, dict[str, float]]]) -> None:
    print(
        "\n| layer | pairs | pairs, mean of lemmas | APD | PRT | JSD |\n|---|---|---|---|---|---|"
    )
    for layer, scores in results.items():
        cells = [f"{s['score']:.3f} ({s['low']:.3f} to {s['high']:.3f})" for s in scores.values()]
        print(f"| {layer} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
