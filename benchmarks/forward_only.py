"""Measure what the forward direction alone costs, in a batch and word by word.

    OMP_NUM_THREADS=1 python benchmarks/forward_only.py TEXT [--model english] [--sentences 40]

TEXT has one sentence a line, already tokenized. Both directions, the forward one and word by word
take turns in one process, with warm caches; the CPU seconds of each are the median of its turns.
Then every word is given to `step` on its own, and its wall time is taken.
"""

import argparse
import lzma
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import elmore

TURNS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--model", default="english")
    parser.add_argument("--sentences", type=int, default=40)
    args = parser.parse_args()
    with lzma.open(args.text, "rt") if args.text.suffix == ".xz" else args.text.open() as file:
        sentences = [words for line in file if (words := line.split())][: args.sentences]
    num_words = sum(map(len, sentences))
    print(f"{args.model}: {len(sentences)} sentences, {num_words} words, {TURNS} turns\n")
    embedders = {
        precision: elmore.load(args.model, device="cpu", precision=precision)
        for precision in ("exact", "fast")
    }
    print("| precision | way | CPU seconds | words per CPU second | of both |\n" + "|---" * 5 + "|")
    for precision, elmo in embedders.items():
        seconds = measure(
            {
                "batch, both directions": partial(elmo.embed, sentences),
                "batch, forward": partial(elmo.embed, sentences, direction="forward"),
                "`step`, a sentence a call": partial(read_sentences, elmo, sentences),
                "`step`, a word a call": partial(read_words, elmo, sentences),
            }
        )
        both = seconds["batch, both directions"]
        for name, each in seconds.items():
            print(
                f"| {precision} | {name} | {each:.2f} | {num_words / each:,.0f} "
                f"| {each / both:.2f} |"
            )
    print("\n| precision | a word a call | median ms | 99th percentile |\n" + "|---" * 4 + "|")
    for precision, elmo in embedders.items():
        for cells in (False, True):
            times = 1e3 * np.array(read_words(elmo, sentences, cells=cells))
            middle, worst = np.percentile(times, [50, 99])
            name = "vectors and cells" if cells else "vectors"
            print(f"| {precision} | {name} | {middle:.2f} | {worst:.2f} |")


def measure(ways: dict[str, Callable[[], object]], turns: int = TURNS) -> dict[str, float]:
    """Return the median CPU seconds of each way; they take turns."""
    seconds = {name: [] for name in ways}
    for turn in range(turns + 1):
        for name, run in ways.items():
            begin = time.process_time()
            run()
            if turn:  # the first fills the caches
                seconds[name].append(time.process_time() - begin)
    return {name: statistics.median(values) for name, values in seconds.items()}


def read_sentences(elmo: elmore.Embedder, sentences: list[list[str]]) -> None:
    """Read every sentence in a call of its own."""
    for sentence in sentences:
        elmo.step(sentence)


def read_words(
    elmo: elmore.Embedder, sentences: list[list[str]], *, cells: bool = False
) -> list[float]:
    """Read every word in a call of its own, and return the wall time of each call."""
    seconds = []
    for sentence in sentences:
        state = None
        for word in sentence:
            begin = time.perf_counter()
            _, state = elmo.step([word], state, cells=cells)
            seconds.append(time.perf_counter() - begin)
    return seconds


if __name__ == "__main__":
    main()
