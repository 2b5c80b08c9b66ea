"""The packaged recipes, by name; this module imports nothing heavy."""

from pathlib import Path

FOLDER = Path(__file__).parent


def list_recipes(kind: str) -> dict[str, Path]:
    """Return the recipes of a kind (`bilm`): their files by name, sorted."""
    return {path.stem: path for path in sorted((FOLDER / kind).glob("*.toml"))}
