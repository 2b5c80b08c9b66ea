"""Find the data that benchmarks read: they are outside the repository, in $ELMORE_DATA."""

import os
from pathlib import Path


def data_path(name: str = "") -> Path:
    """Return the path of a file or folder in $ELMORE_DATA; end the script where it is not there."""
    place = os.environ.get("ELMORE_DATA")
    wanted = f"the folder that holds {name or 'corpus, tasks and vectors'}"
    if not place:
        raise SystemExit(
            f"ELMORE_DATA is not set, but should be {wanted}: set it with export ELMORE_DATA=FOLDER"
        )
    path = Path(place) / name
    if not path.exists():
        raise SystemExit(
            f"{path} is not there, but ELMORE_DATA, which is {place!r}, should be {wanted}: "
            "set it to that folder, or put the data there"
        )
    return path
