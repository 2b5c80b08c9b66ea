"""Draw docs/figures/uses_*.svg (senses on a map) and context.svg (what context does).

    python docs/figures/uses.py docs/figures

Runs the commands of docs/results.md with the bundled model, on the data in ELMORE_DATA. It takes
some minutes on one core; `--only head context` draws only these.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

WORDS = ("head", "present", "light", "plant", "line")


def commands(name: str, data: Path, directory: Path) -> list[list[str]]:
    """Return the arguments of the `elmore` commands that write a figure into a folder."""
    if name in WORDS:
        corpus = data / "tasks/wsd/Training_Corpora/SemCor"
        return [["probe", "uses", name, str(corpus), "-o", str(directory / f"uses_{name}.svg")]]
    text, told = data / "corpus/valid.txt.xz", directory / "text.json"
    return [
        ["probe", "context", str(text), "--split", "--sentences", "4000", "--json"],
        ["report", str(told), "-o", str(directory / "page.html"), "--plots", str(directory)],
    ]


def draw(name: str, data: Path, folder: Path) -> None:
    """Write one figure into a folder."""
    with tempfile.TemporaryDirectory() as kept:
        path = Path(kept)
        for command in commands(name, data, path):
            elmore = [sys.executable, "-m", "elmore", *command]
            done = subprocess.run(elmore, stdout=subprocess.PIPE, check=True)  # noqa: S603
            if "--json" in command:
                (path / "text.json").write_bytes(done.stdout)
        drawn, expected = (
            (f"uses_{name}.svg",) * 2 if name in WORDS else ("context_text.svg", "context.svg")
        )
        (folder / expected).write_bytes((path / drawn).read_bytes())


def main() -> None:
    """Draw what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=[*WORDS, "context"])
    args = parser.parse_args()
    for name in args.only or [*WORDS, "context"]:
        draw(name, Path(os.environ["ELMORE_DATA"]), args.folder)


if __name__ == "__main__":
    main()
