"""Measure the time, memory and disk of `elmore prepare` as the text grows.

    python benchmarks/prepare_scale.py [--files 1 2 4 6] [--workers 2] [--megabytes 20]

Prepares the first 1, 2, 4 and 6 files of $ELMORE_DATA/corpus/train-*.txt.xz as raw text, and the
same text tokenized, as a plain file with one sentence per line. Peak memory is the sum of the peaks
of all processes. Disk is the size of the corpus; while the command runs, its journal takes as much
again (`disk at work`). Time and disk per million words may grow by 10 % from the smallest to the
largest text. --megabytes takes only the beginning of each file.
"""

import argparse
import lzma
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from data_folder import data_path

from elmore.corpus import shards

TARGET = 1.10
COMMAND = [sys.executable, "-c", "import elmore.cli; elmore.cli.main()", "prepare"]
COLUMNS = (
    "text",
    "files",
    "million words",
    "seconds",
    "words/s",
    "s per M words",
    "peak MB",
    "peak MB per M words",
    "disk MB",
    "MB per M words",
    "disk at work MB",
    "word types",
)


class Cost(NamedTuple):
    """What one run took."""

    words: float  # million
    seconds: float
    memory: float  # MB, as the rest
    disk: float
    disk_at_work: float
    num_types: int


def family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(one for child in children for one in family(int(child)))]


def peak(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        return next(
            int(line.split()[1]) / 1000 for line in status.splitlines() if line.startswith("VmHWM")
        )
    except (OSError, StopIteration):  # it is gone, or as good as
        return 0.0


def size(*folders: Path) -> float:
    total = 0
    for folder in folders:
        for path in folder.rglob("*"):
            try:
                total += path.stat().st_size
            except OSError:  # it has just been renamed
                continue
    return total / 1e6


def cost(texts: list[Path], out: Path, options: list[str]) -> Cost:
    """Prepare, and watch."""
    command = [*COMMAND, *map(str, texts), "-o", str(out), *options]
    peaks: dict[int, float] = {}
    at_work, begun = 0.0, time.perf_counter()
    journal = out.with_name(f"{out.name}.parts")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as job:
        while job.poll() is None:
            for pid in family(job.pid):
                peaks[pid] = max(peaks.get(pid, 0.0), peak(pid))
            at_work = max(at_work, size(journal, out))
            time.sleep(0.1)
        seconds = time.perf_counter() - begun
        if job.returncode:
            assert job.stderr is not None
            sys.exit(job.stderr.read().decode())
    corpus = shards.open_corpus(out)
    return Cost(
        corpus.split("train").num_words / 1e6,
        seconds,
        sum(peaks.values()),
        size(out),
        at_work,
        corpus.index["num_types"],
    )


def write_tokenised(corpus: shards.Corpus, path: Path) -> None:
    """Write the sentences of a corpus, a line each, its words between spaces."""
    types = np.array(list(corpus.types), dtype=object)
    tokens = corpus.split("train")
    with path.open("w", encoding="utf-8") as file:
        for starts in np.array_split(tokens.starts, 1 + tokens.num_sentences // 10_000):
            begin = int(starts[0])
            end = int(tokens.first_starts(np.array([starts[-1] + 1]))[0])
            stream = tokens.take(np.arange(begin, end))
            words = types[stream]
            words[stream == shards.BOUNDARY] = "\n"
            file.write(" ".join(words).replace("\n ", "\n").replace(" \n", "\n").lstrip("\n"))
            file.write("\n")


def beginning(path: Path, megabytes: float, folder: Path) -> Path:
    """Cut a text off at the end of a line."""
    out = folder / path.name.removesuffix(".xz")
    with lzma.open(path, "rb") as file:
        data = file.read(int(1e6 * megabytes))
    out.write_bytes(data[: data.rfind(b"\n") + 1])
    return out


def row(kind: str, num_files: int, found: Cost) -> str:
    words = found.words
    values = (
        kind,
        num_files,
        f"{words:.2f}",
        f"{found.seconds:.1f}",
        f"{1e6 * words / found.seconds:,.0f}",
        f"{found.seconds / words:.2f}",
        f"{found.memory:.0f}",
        f"{found.memory / words:.1f}",
        f"{found.disk:.1f}",
        f"{found.disk / words:.2f}",
        f"{found.disk_at_work:.1f}",
        f"{found.num_types:,}",
    )
    return f"| {' | '.join(map(str, values))} |"


def growth(kind: str, costs: list[Cost]) -> str:
    first, last = costs[0], costs[-1]
    ratios = {
        "time": (last.seconds / last.words) / (first.seconds / first.words),
        "disk": (last.disk / last.words) / (first.disk / first.words),
        "memory": (last.memory / last.words) / (first.memory / first.words),
    }
    said = ", ".join(
        f"{name} {ratio:.2f}{' (over the target)' if ratio > TARGET else ''}"
        for name, ratio in ratios.items()
    )
    return f"{kind}: per million words, most text against least (target {TARGET}): {said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, nargs="+", default=[1, 2, 4, 6])
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--megabytes", type=float, default=0, help="of each file, unpacked")
    args = parser.parse_args()
    texts = sorted(data_path("corpus/train-00.txt.xz").parent.glob("train-*.txt.xz"))
    workers = ["--workers", str(args.workers)]
    print(f"{args.workers} workers\n\n| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    costs: dict[str, list[Cost]] = {"raw": [], "tokenised": []}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        if args.megabytes:
            texts = [beginning(path, args.megabytes, place) for path in texts[: max(args.files)]]
        for number in args.files:
            out, tokenised = place / f"raw-{number}", place / f"tokenised-{number}.txt"
            costs["raw"].append(cost(texts[:number], out, workers))
            print(row("raw", number, costs["raw"][-1]), flush=True)
            write_tokenised(shards.open_corpus(out), tokenised)
            out = place / f"tokenised-{number}"
            costs["tokenised"].append(cost([tokenised], out, ["--tokenized", *workers]))
            print(row("tokenised", number, costs["tokenised"][-1]), flush=True)
            tokenised.unlink()
    print()
    for kind, result in costs.items():
        print(growth(kind, result))


if __name__ == "__main__":
    main()
