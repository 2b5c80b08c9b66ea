"""Build an open corpus of English for pretraining from local clones of public repositories.

    python benchmarks/corpus/build.py CLONES OUT --evaluation evaluation-13grams.xz
        --held-out valid.txt.xz [--already train-*.txt.xz] [--json counts.json]

CLONES has a clone, bare or not, of each repository in `sources.toml`, as `owner/name`,
`owner/name.git` or `name`; that file lists the commit, the files and the licence of each. OUT gets
`train-NN.txt.xz`: one paragraph per line, a blank line between documents, the same mix of sources
in each file.

The script removes, in this order: text that is not English prose (`paragraphs.py`); paragraphs and
documents that duplicate, or nearly duplicate, earlier text or a file of --already; documents that
have a paragraph of a file of --held-out; paragraphs that share a 13-gram with an evaluation text or
with a file of --held-out (`overlap.py`). The same clones, files and seed give the same corpus.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from overlap import (
    EVALUATION_WIDTH,
    Grams,
    Seen,
    evaluation_grams,
    find_shared,
    load_evaluation_grams,
    near_grams,
    normalised_hash,
)
from paragraphs import is_prose, split_words, tidy
from readers import READERS
from repositories import Source, Task, list_tasks, load_sources, read_blobs
from shards import Document, Shard, deal, read_lines, write_shard

WINDOW = 8  # tasks under way; a source that has its words does not read on
BATCH = 200  # documents that a process checks at a time
COLUMNS = ("paragraphs", "prose", "new", "kept", "documents", "words")

_forbidden = np.zeros(
    1, "u8"
)  # in a process of the pool: the sorted 13-grams that no paragraph may have


class Candidate(NamedTuple):
    """A document on its way into the corpus, with what its duplicates are found by."""

    paragraphs: list[str]
    exact: list[bytes]
    grams: Grams


def _set_forbidden(grams: np.ndarray) -> None:
    global _forbidden
    _forbidden = grams


def in_order(pool: Pool, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[Any]:
    """Yield results in the order of their tasks, a few of which are under way at a time."""
    pending: deque = deque()
    for task in tasks:
        pending.append(pool.apply_async(function, (task,)))
        if len(pending) == WINDOW:
            yield pending.popleft().get()
    while pending:
        yield pending.popleft().get()


def find_candidate(paragraphs: list[str], min_words: int) -> Candidate:
    """Return what of a document is prose."""
    kept, words = [], []
    for paragraph in paragraphs:
        if paragraph.count(" ") < min_words - 1:
            continue
        paragraph = tidy(paragraph)
        split = split_words(paragraph)
        if is_prose(paragraph, split, min_words):
            kept.append(paragraph)
            words.append(split)
    return Candidate(kept, [*map(normalised_hash, words)], near_grams(words))


def read_task(task: Task) -> tuple[int, list[Candidate]]:
    """Return the number of paragraphs in some files, and the documents with prose."""
    num_paragraphs, candidates = 0, []
    for raw in read_blobs(task.clone, task.blobs):
        for paragraphs in READERS[task.reader](raw):
            num_paragraphs += sum(map(bool, paragraphs))
            result = find_candidate(paragraphs, task.min_words)
            if result.paragraphs:
                candidates.append(result)
    return num_paragraphs, candidates


def hash_lines(lines: list[str]) -> tuple[list[bytes], Grams]:
    """Return what duplicates of lines are found by."""
    words = [*map(split_words, lines)]
    return [*map(normalised_hash, words)], near_grams(words)


def drop_forbidden(documents: list[list[str]]) -> list[list[str]]:
    """Return documents without the paragraphs that have a forbidden 13-gram."""
    kept = []
    for paragraphs in documents:
        shared = find_shared([*map(split_words, paragraphs)], _forbidden)
        kept.append(
            [paragraph for number, paragraph in enumerate(paragraphs) if number not in shared]
        )
    return kept


def find_new(
    pool: Pool, clones: Path, source: Source, seen: Seen, seed: int, counts: Counter
) -> list[list[str]]:
    """Return the documents of a source without what was seen before, up to its number of words."""
    documents, num_words = [], 0
    for num_paragraphs, candidates in in_order(pool, read_task, list_tasks(clones, source, seed)):
        counts["paragraphs"] += num_paragraphs
        for result in candidates:
            counts["prose"] += len(result.paragraphs)
            new = [
                result.paragraphs[number] for number in seen.keep_new(result.exact, result.grams)
            ]
            counts["new"] += len(new)
            if new:
                documents.append(new)
                num_words += sum(paragraph.count(" ") + 1 for paragraph in new)
        if num_words >= source.max_words:
            break
    return documents


def build_source(
    pool: Pool, clones: Path, source: Source, seen: Seen, seed: int
) -> tuple[list[Document], dict[str, int]]:
    """Return the documents of a source and the counts of its row in the table."""
    counts: Counter = Counter()
    new = find_new(pool, clones, source, seen, seed, counts)
    batches = (new[start : start + BATCH] for start in range(0, len(new), BATCH))
    documents = []
    for checked in in_order(pool, drop_forbidden, batches):
        for paragraphs in filter(None, checked):
            num_words = sum(paragraph.count(" ") + 1 for paragraph in paragraphs)
            documents.append(
                Document(
                    source.name, num_words, "".join(f"{line}\n" for line in paragraphs).encode()
                )
            )
            counts["kept"] += len(paragraphs)
            counts["documents"] += 1
            counts["words"] += num_words
    return documents, {column: counts[column] for column in COLUMNS}


def load_forbidden(evaluation: list[Path], held_out: list[Path]) -> np.ndarray:
    """Return the sorted 13-grams of evaluation texts, given as hashes, and of held-out texts."""
    grams = [load_evaluation_grams(path) for path in evaluation]
    for path in held_out:
        grams += [evaluation_grams([*map(split_words, lines)]).hashes for lines in read_lines(path)]
    return np.unique(np.concatenate([np.zeros(1, "u8"), *grams]))


def choose_sources(sources: list[Source], names: list[str] | None) -> list[Source]:
    """Return the sources of these names, or all of them."""
    known = [source.name for source in sources]
    unknown = sorted(set(names or ()) - set(known))
    if unknown:
        raise SystemExit(f"--only {unknown[0]}: no such source; known are {', '.join(known)}")
    return [source for source in sources if not names or source.name in names]


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print counts and licences as Markdown."""
    total = {
        "source": "all",
        "licence": "",
        **{column: sum(row[column] for row in rows) for column in COLUMNS},
    }
    print(f"| source | {' | '.join(COLUMNS)} | licence |\n|---|{'---:|' * len(COLUMNS)}---|")
    for row in [*rows, total]:
        counts = " | ".join(f"{row[column]:,}" for column in COLUMNS)
        print(f"| {row['source']} | {counts} | {row['licence']} |")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clones", type=Path, help="folder with the clones")
    parser.add_argument("out", type=Path, help="folder for the files")
    parser.add_argument("--sources", type=Path, default=Path(__file__).with_name("sources.toml"))
    parser.add_argument("--only", nargs="+", metavar="SOURCE", help="build from these sources")
    texts: dict[str, Any] = {"type": Path, "nargs": "+", "default": []}
    hashes: dict[str, Any] = {"type": Path, "nargs": "*", "required": True}
    parser.add_argument("--evaluation", **hashes, help="hashes of 13-grams to leave out, if any")
    parser.add_argument("--held-out", **texts, help="texts whose 13-grams are left out")
    parser.add_argument("--already", **texts, help="texts whose duplicates are left out")
    parser.add_argument("--words-per-shard", type=int, default=11_500_000)
    parser.add_argument("--first-shard", type=int, default=0, help="number of the first file")
    parser.add_argument("--preset", type=int, default=6, help="of xz")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--nice", type=int, default=10, help="niceness of the processes")
    parser.add_argument("--json", type=Path, help="file for the counts")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    os.nice(asked.nice)
    started = time.monotonic()

    def report(what: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {what}", file=sys.stderr, flush=True)

    asked.out.mkdir(parents=True, exist_ok=True)
    sources = choose_sources(load_sources(asked.sources), asked.only)
    forbidden = load_forbidden(asked.evaluation, asked.held_out)
    seen, rows, documents = Seen(), [], []
    with multiprocessing.get_context("fork").Pool(
        asked.workers, _set_forbidden, (forbidden,)
    ) as pool:
        for path in asked.held_out:
            for lines in read_lines(path):
                seen.add_exact(hash_lines(lines)[0])
                # Only long paragraphs identify a document: "Thank you very much." is in many.
                long = [line for line in lines if line.count(" ") >= EVALUATION_WIDTH - 1]
                seen.hold_out(hash_lines(long)[0])
        for path in asked.already:
            for exact, grams in in_order(pool, hash_lines, read_lines(path)):
                seen.add(exact, grams)
            report(f"{path} read")
        for source in sources:
            result, counts = build_source(pool, asked.clones, source, seen, asked.seed)
            documents += result
            rows.append({"source": source.name, **counts, "licence": source.licence})
            report(f"{source.name}: {counts['words']:,} words")
        num_words = sum(document.num_words for document in documents)
        dealt = deal(documents, max(1, -(-num_words // asked.words_per_shard)), asked.seed)
        shards = [
            Shard(asked.out / f"train-{number:02}.txt.xz", mine, asked.preset)
            for number, mine in enumerate(dealt, asked.first_shard)
        ]
        files = []
        for name, words, size in in_order(pool, write_shard, shards):
            files.append({"file": name, "words": words, "bytes": size})
            report(f"{name}: {words:,} words, {size:,} bytes")
    print_table(rows)
    if asked.json:
        asked.json.write_text(json.dumps({"sources": rows, "files": files}, indent=1) + "\n")


if __name__ == "__main__":
    main()
