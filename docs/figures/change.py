"""Draw docs/figures/change_plane.svg: the uses of *plane* in two periods.

    python docs/figures/change.py dwug_en

The folder is DWUG EN 3.0.0. The sentences, which have a licence of their own, are left out.
"""

import csv
import dataclasses
import sys
from pathlib import Path

import elmore
from elmore.probe.change.corpora import Use
from elmore.probe.change.figures import draw_map
from elmore.probe.change.journal import WordCount
from elmore.probe.change.study import measure_word
from elmore.probe.drawing import files
from elmore.probe.occurrence_map import embed_occurrences
from elmore.probe.occurrences import Occurrence

HERE = Path(__file__).parent


def main(folder: Path) -> None:
    """Embed the uses of both periods and draw them."""
    with (folder / "data/plane_nn/uses.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    old, new = ([read_use(row) for row in rows if row["grouping"] == period] for period in "12")
    model = elmore.load()
    vectors = [
        embed_occurrences(
            model,
            [Occurrence(list(use.tokens), use.position, use.position + 1) for use in uses],
            "top",
        )
        for uses in (old, new)
    ]
    count = WordCount(word="plane", old=len(old), new=len(new))
    change = measure_word(count, old, new, *vectors)
    hidden = [dataclasses.replace(use, tokens=("plane",), position=0) for use in change.uses]
    change = dataclasses.replace(change, uses=tuple(hidden))
    files.save(draw_map(change, "2"), HERE / "change_plane.svg")


def read_use(row: dict[str, str]) -> Use:
    """Read the tokens of a use and the position of the word."""
    position = int(row["indexes_target_token_tokenized"])
    return Use(row["context_tokenized"].split(" "), position, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
