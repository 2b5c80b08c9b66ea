"""Convert the argument columns of CoNLL-2005 to BIO tags and back.

A column has the arguments of one predicate: brackets around each, and a star per token.

    Ann   (A0*     B-A0
    Lee      *)    I-A0
    left   (V*)    B-V
    .        *     O

A later part of an argument has the label C-A1 (continuation), a word that refers to one R-A1; both
are kept, as in `B-C-A1`.
"""

import re
from collections.abc import Sequence

from elmore.errors import DataError
from elmore.tasks.metrics.bio import extract_spans

_CELL = re.compile(r"(?:\((?P<label>[^()*\s]+))?\*(?P<close>\)?)")


def cells_to_tags(cells: Sequence[str], locations: Sequence[str]) -> list[str]:
    """Convert a column to tags; `locations` are the positions of the cells, for messages."""
    tags: list[str] = []
    opened_at, inside = "", ""  # where, and what
    for cell, where in zip(cells, locations, strict=True):
        match = _CELL.fullmatch(cell)
        if not match:
            raise DataError(
                f"{where}: expected *, (LABEL*, *) or (LABEL*) in an argument column, found "
                f"{cell!r}; arguments may not lie inside one another"
            )
        label = match["label"]
        if label and inside:
            raise DataError(
                f"{where}: {cell!r} opens inside ({inside}*, which {opened_at} opened and nothing "
                "has closed; expected arguments one after another"
            )
        if label:
            opened_at, inside = where, label
            tags.append(f"B-{label}")
        else:
            tags.append(f"I-{inside}" if inside else "O")
        if match["close"]:
            if not inside:
                raise DataError(
                    f"{where}: {cell!r} closes an argument, and none is open; expected (LABEL* "
                    "before it in the sentence"
                )
            inside = ""
    if inside:
        raise DataError(
            f"{opened_at}: ({inside}* is not closed by the end of its sentence; expected *) on a "
            "later line"
        )
    return tags


def tags_to_cells(tags: Sequence[str]) -> list[str]:
    """Convert tags to a column."""
    cells = ["*"] * len(tags)
    for first, after, label in extract_spans(tags):
        cells[first] = f"({label}*"
        cells[after - 1] += ")"
    return cells
