"""Draw blimp.svg from the scores of `elmore probe suite --only blimp --json`.

python docs/figures/blimp.py docs/figures/blimp.svg
"""

import json
import sys
from pathlib import Path

from elmore.probe.drawing import files
from elmore.probe.suite.blimp_chart import draw_blimp
from elmore.probe.suite.scores import Score

SCORES = Path(__file__).resolve().parents[2] / "benchmarks/results/blimp_2026-11-18.json"


def main() -> None:
    """Draw the scores of the file into the picture that is named."""
    rows = json.loads(SCORES.read_text(encoding="utf-8"))["scores"]["blimp"]
    files.save(draw_blimp([Score(**row) for row in rows]), Path(sys.argv[1]))


if __name__ == "__main__":
    main()
