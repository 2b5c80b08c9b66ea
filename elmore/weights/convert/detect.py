"""Which foreign format a folder has, without reading its weights."""

import re
from pathlib import Path

from elmore.errors import WeightsError

INDEX = ".index"
_MODULE = "variables/variables.index"


def is_many_langs(folder: Path) -> bool:
    """Return whether a folder looks like a model of ELMoForManyLangs."""
    return all((folder / name).is_file() for name in ("token_embedder.pkl", "encoder.pkl"))


def is_module(folder: Path) -> bool:
    """Return whether a folder looks like a TF-Hub module."""
    return (folder / _MODULE).is_file()


def find_index(folder: Path) -> Path | None:
    """Return the index of a module, or of the last checkpoint of a training run."""
    if is_module(folder):
        return folder / _MODULE
    indices = sorted(folder.glob(f"*{INDEX}"))
    listing = folder / "checkpoint"
    if len(indices) > 1 and listing.is_file():  # lists the checkpoints, the last one first
        text = listing.read_text(encoding="utf-8", errors="replace")
        last = re.match(r'model_checkpoint_path: "(?:.*/)?([^/"]+)"', text)
        indices = [path for path in indices if last and path.stem == last[1]] or indices
    if len(indices) > 1:
        raise WeightsError(
            f"{folder}: found {len(indices)} checkpoints, {indices[0].name} among them; pass the "
            "one you want"
        )
    return indices[0] if indices else None
