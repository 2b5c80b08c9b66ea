"""Measure the time and memory to load a full-size model (93.6 M random weights).

    python benchmarks/load_model.py

Each load runs in a fresh process after `import torch`; the file is in the page cache, as after a
download. Memory is the peak above the memory of the process after importing torch.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from elmore.model.bilm import BiLM
from elmore.model.config import BiLMConfig
from elmore.text.characters import ByteAlphabet
from elmore.weights import folder
from elmore.weights.bundle import Bundle
from elmore.weights.convert import bilm_tf

REPEATS = 5
TARGETS = {"weights.hdf5": 5.0, "folder": 1.0}  # seconds
MEMORY_TARGET = 1.3  # times the weights

LOAD = """
import json, resource, sys, time
import torch

def resident(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key)) * 1024

with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak counts from here
before = resident("VmRSS")
start = time.perf_counter()
import elmore
elmo = elmore.load(*sys.argv[1:])
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "bytes": resident("VmHWM") - before}))
"""


def measure(*sources: Path) -> tuple[float, float]:
    """Return the median seconds and the largest memory of several loads."""
    runs = []
    for _ in range(REPEATS):
        command = [sys.executable, "-c", LOAD, *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout))
    return statistics.median(run["seconds"] for run in runs), max(run["bytes"] for run in runs)


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    torch.manual_seed(0)
    model = BiLM(BiLMConfig()).eval()
    num_bytes = 4 * sum(weight.numel() for weight in model.parameters())
    print(f"original size, {num_bytes / 1e6:.0f} MB of weights, torch {torch.__version__}")
    print("| from | seconds (median of 5) | target | peak memory / weights | target |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        place, bundle = Path(name), Bundle(model, ByteAlphabet())
        bilm_tf.write_bilm_tf(bundle, place / "theirs")
        folder.save(bundle, place / "ours")
        theirs = (place / "theirs" / "options.json", place / "theirs" / "weights.hdf5")
        for what, sources in (("weights.hdf5", theirs), ("folder", (place / "ours",))):
            seconds, memory = measure(*sources)
            share = memory / num_bytes
            print(f"| {what} | {seconds:.2f} | {TARGETS[what]} | {share:.2f} | {MEMORY_TARGET} |")


if __name__ == "__main__":
    main()
