"""The packaged recipes, by name; this module imports nothing heavy."""

from pathlib import Path

FOLDER = Path(__file__).parent


def list_recipes(kind: str) -> dict[str, Path]:
    """Return the recipes of a kind (`bilm`): their files by name, sorted."""
    paths = sorted((FOLDER / kind).glob("*.toml"), key=lambda path: path.stem)
    return {path.stem: path for path in paths}
