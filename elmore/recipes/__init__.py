"""The recipes that come with the package, found by name; to list them loads nothing heavy."""

from pathlib import Path

FOLDER = Path(__file__).parent


def named(kind: str) -> dict[str, Path]:
    """Return the files of a kind of recipes (`bilm`) by their names, in order."""
    return {path.stem: path for path in sorted((FOLDER / kind).glob("*.toml"))}
