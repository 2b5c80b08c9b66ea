"""Measure whether the memory of `elmore embed` grows with the input.

    python benchmarks/embed_memory.py

Compares the peak for 300 thousand distinct real sentences (--pool mean, parquet) and for 100
thousand (one vector per token, hdf5) with the peak for 10 thousand of the same. They may differ by
300 MB. The model is tiny, because its size does not matter here. The text is
$ELMORE_DATA/corpus/train-00.txt.xz and following.
"""

import argparse
import lzma
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from data_folder import data_path

from elmore.lm import config
from elmore.model.bilm import BiLM
from elmore.text import sentences
from elmore.text.characters import ByteAlphabet
from elmore.weights import folder
from elmore.weights.bundle import Bundle

TARGET = 300  # MB
JOBS = {"pooled.parquet": (300_000, ["--pool", "mean"]), "tokens.hdf5": (100_000, [])}

RUN = """
import sys
from elmore import cli
sys.argv = ["elmore", *sys.argv[1:]]
try:
    cli.main()
finally:
    with open("/proc/self/status") as file:
        peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
    print(peak / 1024, file=sys.stderr)
"""


def distinct_sentences() -> Iterator[str]:
    seen = set()
    folder_of_text = data_path("corpus/train-00.txt.xz").parent
    for path in sorted(folder_of_text.glob("train-*.txt.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                for start, end in sentences.split_sentences(line):
                    text = line[start:end].replace("\n", " ")
                    if hash(text) not in seen:
                        seen.add(hash(text))
                        yield text


def peak(text: Path, out: Path, model: Path, options: list[str]) -> float:
    command = [sys.executable, "-c", RUN, "embed", text, "-o", out, "--model", model, *options]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    return float(done.stderr.splitlines()[-1])


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    torch.manual_seed(0)
    shape = config.read_pretrain_recipe("tiny").model
    print("| output | sentences | peak MB | above 10 thousand | target |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        folder.save(Bundle(BiLM(shape), ByteAlphabet()), path / "model")
        most = max(count for count, _ in JOBS.values())
        lines = [text for text, _ in zip(distinct_sentences(), range(most), strict=False)]
        for out, (count, options) in JOBS.items():
            peaks = []
            for number in (10_000, count):
                (path / "text.txt").write_text("\n".join(lines[:number]) + "\n")
                peaks.append(
                    peak(path / "text.txt", path / f"{number}-{out}", path / "model", options)
                )
                (path / f"{number}-{out}").unlink()
                above = peaks[-1] - peaks[0]
                print(
                    f"| {out} | {number:,} | {peaks[-1]:.0f} | {above:.0f} | {TARGET} |", flush=True
                )


if __name__ == "__main__":
    main()
