"""Measure small costs in CPU seconds: the softmax, a request for substitutes, rows of `.parquet`.

    OMP_NUM_THREADS=1 python benchmarks/small_costs.py [--model english] [--tokens 5500]
                                                       [--rows 1000000] [--rounds 5]

The softmax gives the log-probabilities of the words of whole sentences of
$ELMORE_DATA/corpus/valid.txt.xz in both directions, as in `probe suite`, exactly and with int8
products over the same states. Requests for substitutes run in the engine of the server, without
HTTP, for sentences of one token and for texts of 400. The `.parquet` files have the sentences of
the same text as rows, repeated if it is too short, and a fifth as many rows if these are lists of
tokens. The rows of each printed table take turns, after one turn that fills the caches, and the
numbers are medians over the rounds.
"""

import argparse
import tempfile
from collections import deque
from functools import partial
from itertools import accumulate, chain, cycle, islice
from pathlib import Path

import contestants
import numpy as np
import pyarrow
from forward_only import measure
from pyarrow import parquet

import elmore
from elmore.probe.suite.word_probabilities import WordProbabilities
from elmore.serve.engine import SUBSTITUTES, Engine, SubstitutesWork
from elmore.text.files import Lines

LONG = 400  # tokens of a long text
NUM_SHORT, NUM_LONG = 40, 4  # requests in a round


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="english")
    parser.add_argument("--tokens", type=int, default=5500, help="for the softmax")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of tables")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    sentences = [words for words in contestants.real_sentences() if words]
    embedders = {
        precision: elmore.load(args.model, device="cpu", precision=precision)
        for precision in ("exact", "fast")
    }
    print(f"{args.model}, medians of {args.rounds} rounds, numpy {np.__version__}")
    measure_softmax(embedders, sentences, args.tokens, args.rounds)
    measure_substitutes(embedders["exact"], sentences, args.rounds)
    with tempfile.TemporaryDirectory() as name:
        measure_tables(Path(name), sentences, args.rows, args.rounds)


def measure_softmax(
    embedders: dict[str, elmore.Embedder], sentences: list[list[str]], num_tokens: int, rounds: int
) -> None:
    """Print what the softmax of each precision costs over the same states, and these states."""
    ends = accumulate(map(len, sentences))
    texts = [words for words, end in zip(sentences, ends, strict=False) if end <= num_tokens]
    targets = [*chain(*texts)] * 2  # of both directions
    exact, fast = (WordProbabilities(embedders[precision]) for precision in ("exact", "fast"))

    def run_model() -> np.ndarray:
        return np.concatenate([*chain(*zip(*fast.stream_states(texts), strict=True))])

    states = run_model()
    seconds = measure(
        {
            "exact": partial(exact.log_probs, states, targets),
            "int8 products (`fast`)": partial(fast.log_probs, states, targets),
            "the states, `fast`, with cached words": run_model,
        },
        rounds,
    )
    vocabulary = embedders["exact"].bundle.vocabulary
    assert vocabulary is not None
    counts = f"{len(states):,} states, {len(vocabulary):,} words"
    print(f"\n| softmax, {counts} | CPU seconds | of exact |\n|---|---|---|")
    for name, each in seconds.items():
        print(f"| {name} | {each:.2f} | {each / seconds['exact']:.2f} |")
    differences = fast.log_probs(states, targets) - exact.log_probs(states, targets)
    worst = np.abs(differences).max()
    print(
        f"\nLog-probabilities differ by {differences.std():.4f} (standard deviation), "
        f"at most by {worst:.2f}."
    )


def measure_substitutes(elmo: elmore.Embedder, sentences: list[list[str]], rounds: int) -> None:
    """Print what a request costs, and how many tokens of a long text cost as much as ranking."""
    assert elmo.bundle.vocabulary is not None
    engine, num_words = Engine(elmo), len(elmo.bundle.vocabulary)
    words = list(islice(chain.from_iterable(sentences), LONG * NUM_LONG))
    short = [SubstitutesWork([word], 0, 10) for word in words[:NUM_SHORT]]
    long = [
        SubstitutesWork(words[begin : begin + LONG], LONG // 2, 10)
        for begin in range(0, len(words), LONG)
    ]
    run = partial(engine.run, SUBSTITUTES)
    seconds = measure({"short": partial(run, short), "long": partial(run, long)}, rounds)
    one, many = seconds["short"] / len(short), seconds["long"] / len(long)
    token = (many - one) / (LONG - 1)
    print(f"\n| substitutes, {num_words:,} words | CPU milliseconds | of a further token |")
    print("|---|---|---|")
    rows = {"a sentence of one token": one, f"a text of {LONG} tokens": many}
    for name, each in {**rows, "each further token": token}.items():
        print(f"| {name} | {1e3 * each:.2f} | {each / token:.1f} |")
    counted = short[0].cost(num_words)
    print(f"\nThe queue of the server counts a sentence of one token as {counted} tokens.")


def measure_tables(folder: Path, sentences: list[list[str]], num_rows: int, rounds: int) -> None:
    """Print what reading tables costs, with the text alone and with other columns."""
    texts = list(islice(cycle(map(" ".join, sentences)), num_rows))
    lists = list(islice(cycle(sentences), num_rows // 5))
    numbers = np.arange(num_rows)
    others = {"id": numbers, "place": [f"paragraph {i // 7}" for i in numbers], "x": numbers / 3}
    tables = {
        "text": {"text": texts},
        "text and three columns": {"text": texts, **others},
        "lists of tokens": {"text": lists},
        "lists of tokens and an id": {"text": lists, "id": numbers[: len(lists)]},
    }
    for name, columns in tables.items():
        parquet.write_table(pyarrow.table(columns), folder / f"{name}.parquet")

    def read(name: str) -> None:
        rows = Lines([str(folder / f"{name}.parquet")]).rows(others=len(tables[name]) > 1)
        deque(rows, maxlen=0)

    seconds = measure({name: partial(read, name) for name in tables}, rounds)
    what = f"`.parquet`, pyarrow {pyarrow.__version__}"
    print(f"\n| {what} | rows | CPU seconds | µs a row | of text |\n|---|---|---|---|---|")
    per_row = {name: each / len(tables[name]["text"]) for name, each in seconds.items()}
    for name, each in seconds.items():
        count, ratio = len(tables[name]["text"]), per_row[name] / per_row["text"]
        print(f"| {name} | {count:,} | {each:.2f} | {1e6 * per_row[name]:.2f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
