"""Find the files of a set in its folder."""

from pathlib import Path

from elmore.errors import DataError

_COMPRESSIONS = ("", ".gz", ".xz", ".bz2", ".zst")


def find_files(folder: Path, pattern: str) -> list[Path]:
    """Return the files that match a pattern, compressed or not, sorted by name."""
    return sorted(path for ending in _COMPRESSIONS for path in folder.glob(pattern + ending))


def find_file(folder: Path, pattern: str) -> Path:
    """Return the only file that matches a pattern, compressed or not."""
    paths = find_files(folder, pattern)
    if len(paths) != 1:
        raise DataError(f"{folder}: expected one file {pattern} in it, found {len(paths)}")
    return paths[0]
