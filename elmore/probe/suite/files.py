"""Find the files of a set in its folder."""

from itertools import pairwise
from pathlib import Path

from elmore.errors import DataError
from elmore.text.files import COMPRESSIONS


def find_files(folder: Path, pattern: str) -> list[Path]:
    """Return the files that match a pattern, compressed or not, sorted by name.

    Raises:
        DataError: A file is there twice, for example compressed and not.
    """
    endings = ("", *COMPRESSIONS)
    found = sorted(
        (path.name.removesuffix(ending), path)
        for ending in endings
        for path in folder.glob(pattern + ending)
    )
    for (name, first), (other, second) in pairwise(found):
        if name == other:
            raise DataError(
                f"{folder}: expected {name} once, found {first.name} and {second.name}; remove one"
            )
    return [path for _, path in found]


def find_file(folder: Path, pattern: str) -> Path:
    """Return the only file that matches a pattern, compressed or not."""
    paths = find_files(folder, pattern)
    if len(paths) != 1:
        raise DataError(f"{folder}: expected one file {pattern} in it, found {len(paths)}")
    return paths[0]
