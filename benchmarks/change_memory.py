"""Measure whether the memory of `elmore change` grows with the corpora.

    python benchmarks/change_memory.py [--sentences 10000 100000 400000] [--words 50]

Compares the beginnings of $ELMORE_DATA/corpus/train-00.txt.xz and train-01.txt.xz, each of so many
sentences, in a process and a cache of its own: peak memory, CPU seconds, and the words compared.
"""

import argparse
import itertools
import lzma
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from data_folder import data_path

from elmore.text import sentences


def main() -> None:
    """Print a table with a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=int, nargs="+", default=[10_000, 100_000, 400_000])
    parser.add_argument("--words", type=int, default=50, help="words to compare")
    options = parser.parse_args()
    print("| sentences of a corpus | words | peak MiB | CPU seconds | seconds |")
    print("|---|---|---|---|---|", flush=True)
    for count in options.sentences:
        with tempfile.TemporaryDirectory() as name:
            texts = [write_text(Path(name), number, count) for number in (0, 1)]
            print(f"| {count:,} | {' | '.join(compare(texts, options.words))} |", flush=True)


def write_text(folder: Path, number: int, count: int) -> Path:
    """Write the first sentences of a file of the corpus, one in each line."""
    source = data_path(f"corpus/train-{number:02}.txt.xz")
    path = folder / f"{number}.txt"
    with lzma.open(source, "rt", encoding="utf-8") as file, path.open("w", encoding="utf-8") as out:
        out.writelines(f"{text}\n" for text in itertools.islice(split(file), count))
    return path


def split(lines: Iterator[str]) -> Iterator[str]:
    """Yield the sentences of lines."""
    for line in lines:
        for start, end in sentences.split_sentences(line):
            yield line[start:end].replace("\n", " ")


def compare(texts: list[Path], num_words: int) -> tuple[str, ...]:
    """Run the command, and return words, peak memory, CPU time and time as cells of a table."""
    command = [sys.executable, "-m", "elmore", "change", *texts, "--max-words", num_words, "--json"]
    environment = {**os.environ, "ELMORE_CACHE": str(texts[0].parent / "cache")}
    start = time.perf_counter()
    process = subprocess.Popen(
        list(map(str, command)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    num_lines = sum(1 for _ in process.stdout)
    _, status, used = os.wait4(process.pid, 0)  # with the peak of this process alone
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: exit {process.returncode}")
    seconds = f"{used.ru_utime + used.ru_stime:.0f}", f"{time.perf_counter() - start:.0f}"
    return f"{num_lines}", f"{used.ru_maxrss / 1024:.0f}", *seconds


if __name__ == "__main__":
    main()
