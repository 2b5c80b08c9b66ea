"""Measure what a repeated call of `embed` with one sentence costs, against its first calls.

    python benchmarks/repeated_calls.py [--sentences 20] [--runs 15] [--precision exact]

For each sentence of 15 to 25 words a model is loaded anew, and embeds the sentence before it: the
first call of an embedder, which also packs the weights. Then it embeds the sentence itself, whose
words are new except for a few, and again and again: its words are in the caches. The result is the
median over the sentences; a ratio is a median of ratios. The text is
$ELMORE_DATA/corpus/valid.txt.xz.
"""

import argparse
import itertools
import statistics
import time
from itertools import pairwise

import contestants

import elmore
from elmore import Embedder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=int, default=20)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--precision", choices=["exact", "fast"], default="exact")
    args = parser.parse_args()
    chosen = (words for words in contestants.real_sentences() if 15 <= len(words) <= 25)
    rows = []
    for before, sentence in pairwise(itertools.islice(chosen, args.sentences + 1)):
        elmo = elmore.load(device="cpu", precision=args.precision)
        first, new = milliseconds(elmo, before), milliseconds(elmo, sentence)
        again = statistics.median(milliseconds(elmo, sentence) for _ in range(args.runs))
        rows.append((first, new, again))
    print("| call | ms | / repeated call |\n|---|---|---|")
    names = ("first of an embedder", "first with this sentence", "repeated")
    for column, name in enumerate(names):
        took = statistics.median(row[column] for row in rows)
        ratio = statistics.median(row[column] / row[2] for row in rows)
        print(f"| {name} | {took:.1f} | {ratio:.2f} |")


def milliseconds(elmo: Embedder, sentence: list[str]) -> float:
    """Return how long one call takes."""
    begun = time.perf_counter()
    elmo.embed([sentence])
    return 1000 * (time.perf_counter() - begun)


if __name__ == "__main__":
    main()
