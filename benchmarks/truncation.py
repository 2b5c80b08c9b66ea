"""Measure how well truncated vectors of texts rank the pairs of STS-B.

    python benchmarks/truncation.py sts-test.csv [--model NAME] [--widths 16 32 64 128]

Prints Spearman's correlation x 100 of the cosine with the scores of people, for the first numbers
of the vectors that `Embedder.encode` returns.
"""

import argparse
from pathlib import Path

import numpy as np

import elmore
from elmore.embed.pooling import normalize
from elmore.probe.estimates import spearman


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--model", default="english")
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 32, 64, 128])
    args = parser.parse_args()
    rows = [line.split("\t") for line in args.file.read_text("utf-8").splitlines()]
    gold = np.array([float(row[4]) for row in rows])
    elmo = elmore.load(args.model)
    left, right = (elmo.encode([row[column] for row in rows]) for column in (5, 6))
    for width in (*args.widths, left.shape[1]):
        pair = (normalize(each[:, :width]) for each in (left, right))
        cosines = np.prod(list(pair), axis=0).sum(axis=1)
        print(f"{width:5} {100 * spearman(cosines, gold):.1f}")


if __name__ == "__main__":
    main()
