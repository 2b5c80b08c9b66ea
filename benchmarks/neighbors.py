"""Measure an index of a million uses: its cost, its speed, and the recall of faiss.

    python benchmarks/neighbors.py RESULTS.json --index FOLDER [--uses 1000000] [--queries 500]
    python benchmarks/neighbors.py RESULTS.json --page

The index holds the top layer of the bundled model for the beginning of
$ELMORE_DATA/corpus/train-00. The queries are uses in corpus/valid, sampled once. Recall is the
fraction of the ten exact neighbours that faiss finds. The time of a query is that of the search
alone; `with the sentence` includes embedding the sentence of the query. FOLDER keeps the text and
the index, so a stopped run continues; the seconds of building are then those of the last run. Run
nothing else at the same time.
"""

import argparse
import json
import lzma
import os
import platform
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import ParamSpec

import numpy as np
import torch
from data_folder import data_path

import elmore
from elmore import atomic
from elmore.embed.outputs import EmbeddedText
from elmore.probe.neighbors import faiss_search
from elmore.probe.neighbors.index import OccurrenceIndex
from elmore.text import sentences
from elmore.text.target_word import WordInContext
from elmore.text.tokenizers import penn

K = 10
RECALL, MILLISECONDS = 0.95, 20.0

P = ParamSpec("P")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--index", type=Path, help="folder for the text and the index")
    parser.add_argument("--uses", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--precision", choices=["exact", "fast"], default="exact")
    parser.add_argument("--page", action="store_true", help="only print the page")
    args = parser.parse_args()
    if args.page:
        print(page(json.loads(args.results.read_text())))
        return
    if args.index is None:
        sys.exit("name a folder for the text and the index with --index")
    faiss_search.MIN_OCCURRENCES = min(
        faiss_search.MIN_OCCURRENCES, args.uses
    )  # a small try takes the same way
    elmo = elmore.load(device="cpu", precision=args.precision)
    index, result = built(elmo, args.index, args.uses)
    result |= {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": platform.machine(),
        "precision": args.precision,
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
    }
    result |= searched(index, drawn(args.queries))
    before = json.loads(args.results.read_text()) if args.results.exists() else {}
    if result["build"]["read"] == 0 and before.get("uses") == result["uses"]:
        result["build"] = before["build"]  # it was built by an earlier run
    atomic.write(args.results, json.dumps(result, indent=1).encode())
    print(page(result))


def built(elmo: elmore.Embedder, folder: Path, uses: int) -> tuple[OccurrenceIndex, dict]:
    """Build the index, and say what it took."""
    text = beginning(folder, uses)
    spent, begun = [0.0], time.perf_counter()
    last = [0.0]
    counts: list[int] = []

    def progress(fraction: float | None, sentences: int, uses: int) -> None:
        counts.append(uses)
        if time.perf_counter() - last[0] > 10:
            last[0] = time.perf_counter()
            print(f"{uses:,} uses, {last[0] - begun:.0f} s", file=sys.stderr, flush=True)

    elmo.stream = timed(elmo.stream, spent)
    index = OccurrenceIndex.build(folder / f"index-{uses}", elmo, [text], progress=progress)
    total = time.perf_counter() - begun
    del elmo.stream
    sizes = {path.name: path.stat().st_size for path in index.folder.iterdir()}
    build = {
        "read": counts[-1] - counts[0] if counts else 0,
        "seconds": total,
        "embedding": spent[0],
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }
    return index, {"asked": uses, "uses": len(index), "build": build, "bytes": sizes}


def timed(
    stream: Callable[P, Iterator[EmbeddedText]], spent: list[float]
) -> Callable[P, Iterator[EmbeddedText]]:
    """Return a method that embeds, and adds its seconds to the only entry of `spent`."""

    def measured(*texts: P.args, **choices: P.kwargs) -> Iterator[EmbeddedText]:
        result = stream(*texts, **choices)
        while True:
            before = time.perf_counter()
            sentence = next(result, None)
            spent[0] += time.perf_counter() - before
            if sentence is None:
                return
            yield sentence

    return measured


def beginning(folder: Path, uses: int) -> Path:
    """Write as much of the corpus as has so many tokens."""
    path = folder / f"text-{uses}.txt"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    lines, left = [], uses
    with lzma.open(data_path("corpus/train-00.txt.xz"), "rt", encoding="utf-8") as file:
        while left > 0 and (line := file.readline()):
            lines.append(line)
            left -= len(penn(line).words)
    atomic.write(path, "".join(lines).encode())
    return path


def drawn(number: int) -> list[WordInContext]:
    """Draw uses of a text that is not in the index."""
    with lzma.open(data_path("corpus/valid.txt.xz"), "rt", encoding="utf-8") as file:
        spans = [(line, span) for line in file for span in sentences.split_sentences(line)]
    chance = random.Random(0)
    tokens = [penn(line[slice(*span)]).words for line, span in chance.sample(spans, number)]
    return [WordInContext(words, chance.randrange(len(words))) for words in tokens]


def searched(index: OccurrenceIndex, queries: list[WordInContext]) -> dict:
    """Ask every query each way, and compare."""
    texts = index.embedder.stream([use.tokens for use in queries], layers="top")
    vectors = [s.vectors[use.position] for s, use in zip(texts, queries, strict=True)]
    result, quick = asked(vectors, lambda vector: index.nearest_rows(vector, K).rows)
    exact, slow = asked(vectors, lambda vector: index.nearest_rows(vector, K, exact=True).rows)
    pairs = zip(result, exact, strict=True)
    shared = [len({*one.tolist()} & {*two.tolist()}) / K for one, two in pairs]
    _, whole = asked(queries, lambda use: index.search(use.tokens, use.position, K))
    return {
        "queries": len(queries),
        "recall": float(np.mean(shared)),
        "faiss_ms": quick,
        "exact_ms": slow,
        "with_sentence_ms": whole,
    }


def asked(queries: list, ask: Callable) -> tuple[list, dict[str, float]]:
    """Ask one at a time, after some that are not counted: they bring the files into memory."""
    for query in queries[:5]:
        ask(query)
    answers, seconds = [], []
    for query in queries:
        begun = time.perf_counter()
        answers.append(ask(query))
        seconds.append(time.perf_counter() - begun)
    half, most = np.percentile(seconds, [50, 99]) * 1000
    return answers, {"p50": float(half), "p99": float(most)}


def page(found: dict) -> str:
    """Write the page."""
    build, megabytes = found["build"], {n: b / 1e6 for n, b in found["bytes"].items()}
    after = build["seconds"] - build["embedding"]
    lines = [
        f"# Neighbours of a use among {found['uses']:,}, {found['date']}\n",
        f"`python benchmarks/neighbors.py RESULTS.json --index FOLDER --uses {found['asked']} "
        f"--queries {found['queries']} --precision {found['precision']}` on "
        f"{found['cores']} cores ({found['machine']}), {found['threads']} threads, the bundled "
        "model, its top layer.\n",
        "## Building\n",
        "| uses read | seconds | of them embedding | writing and faiss | peak memory MB |",
        "|---|---|---|---|---|",
        f"| {build['read']:,} | {build['seconds']:.0f} | {build['embedding']:.0f} | {after:.0f} "
        f"({100 * after / build['seconds']:.0f} %) | {build['peak_mb']:.0f} |",
        "",
        "| file | MB |",
        "|---|---|",
        *(f"| {name} | {size:.1f} |" for name, size in sorted(megabytes.items())),
        f"| in all | {sum(megabytes.values()):.1f} |",
        "",
        f"## Searching: {K} neighbours, {found['queries']} queries\n",
        "| search | recall@10 | p50 ms | p99 ms |",
        "|---|---|---|---|",
        f"| exact | 1 | {times(found['exact_ms'])} |",
        f"| faiss | {found['recall']:.3f} | {times(found['faiss_ms'])} |",
        f"| faiss, with the sentence | | {times(found['with_sentence_ms'])} |",
        "",
        f"To hold: recall at least {RECALL} ({verdict(found['recall'] >= RECALL)}), a search under "
        f"{MILLISECONDS:.0f} ms ({verdict(found['faiss_ms']['p99'] < MILLISECONDS)} at p99), and "
        f"building limited by embedding ({verdict(after < build['embedding'])}).",
    ]
    return "\n".join(lines)


def times(found: dict[str, float]) -> str:
    return f"{found['p50']:.1f} | {found['p99']:.1f}"


def verdict(held: bool) -> str:
    return "held" if held else "missed"


if __name__ == "__main__":
    main()
