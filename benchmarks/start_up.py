"""Measure the time to the first vector of the bundled model, next to `import torch` alone.

    python benchmarks/start_up.py [--rounds 5]

Prints medians over interleaved rounds, each in a process of its own. Targets: `elmore.load()` under
one second, `elmore embed` of a short file at most 3 s more than `python -c "import torch"`.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LOAD = "import time, torch, elmore; begun = time.perf_counter(); elmore.load(); "
LOAD += "print(time.perf_counter() - begun)"


def seconds(*command: str) -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    taken: dict[str, list[float]] = {"import torch": [], "load": [], "embed": [], "help": []}
    with tempfile.TemporaryDirectory() as name:
        text = Path(name) / "short.txt"
        text.write_text("I left it at the bank.\nThe bank of the river was muddy.\n")
        for number in range(rounds):
            out = Path(name) / f"{number}.hdf5"
            taken["import torch"].append(seconds("-c", "import torch"))
            taken["embed"].append(seconds("-m", "elmore", "embed", str(text), "-o", str(out)))
            taken["help"].append(seconds("-m", "elmore", "--help"))
            done = subprocess.run(
                [sys.executable, "-c", LOAD], check=True, capture_output=True, text=True
            )
            taken["load"].append(float(done.stdout))
    result = {name: statistics.median(values) for name, values in taken.items()}
    for name, value in result.items():
        print(f"{name}: {value:.2f} s")
    more = result["embed"] - result["import torch"]
    print(f"embed beyond import torch: {more:.2f} s (target 3)")
    if more > 3 or result["load"] > 1:
        sys.exit("a target is missed")


if __name__ == "__main__":
    main()
