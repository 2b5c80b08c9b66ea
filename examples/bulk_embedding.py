"""Embed a file of any size, one vector per line, and search it.

    python examples/bulk_embedding.py [TEXT] [QUERY]

`elmore embed` does the work: it needs little memory, and --resume continues a stopped job.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet

import elmore

LINES = """The orchestra played in the old theatre .
He scored two goals in the final match .
The recipe needs three eggs and a cup of flour .
She plays the violin and the piano .
The team lost the game by one point .
Bake the cake for forty minutes .
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        text = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(name) / "text.txt"
        if len(sys.argv) <= 1:
            text.write_text(LINES)
        query = sys.argv[2] if len(sys.argv) > 2 else "They played music on the stage ."
        out = Path(name) / "vectors.parquet"
        subprocess.run(
            [sys.executable, "-m", "elmore", "embed", text, "-o", out, "--pool", "mean"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        table = pyarrow.parquet.read_table(out)
    vectors = np.stack(table["vectors"].to_numpy())
    elmo = elmore.load()
    (scores,) = elmo.similarity([query], vectors, pool="mean")
    lines = text.read_text().split("\n") if text.exists() else LINES.split("\n")
    print(f"nearest to: {query}")
    for number in np.argsort(-scores)[:3]:
        print(f"  {scores[number]:.2f}  {lines[number]}")


if __name__ == "__main__":
    main()
