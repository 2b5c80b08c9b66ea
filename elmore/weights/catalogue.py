"""The models known by name, and the addresses of their files."""

import json
import tomllib
from dataclasses import dataclass
from importlib import resources

from elmore import cache, config
from elmore.errors import WeightsError
from elmore.weights import fetch

BUNDLED = "english"
"""The model that comes with the package."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A published model; the bundled one has no files."""

    language: str
    licence: str
    data: str
    files: tuple[str, ...] = ()
    sha256: tuple[str, ...] = ()


def known_models() -> dict[str, Entry]:
    """Return the models by name, the bundled one first."""
    package = resources.files("elmore.weights")
    card = json.loads((package / "bundled" / "config.json").read_text(encoding="utf-8"))["card"]
    bundled = Entry(language=card["language"], licence=card["licence"], data=card["data"])
    published = tomllib.loads((package / "pretrained.toml").read_text(encoding="utf-8"))
    entries = {
        name: config.build(Entry, data, f"pretrained.toml: {name}")
        for name, data in published.items()
    }
    return {BUNDLED: bundled} | entries


def find_model(name: str) -> Entry:
    """Return a model by name.

    Raises:
        WeightsError: There is no such model; the message suggests a similar name.
    """
    entries = known_models()
    if name not in entries:
        hint = config.suggest(name, entries) or "'elmore models' lists the names"
        raise WeightsError(f"{name}: no such file or folder, and no model of that name; {hint}")
    return entries[name]


def model_status(name: str) -> str:
    """Return `bundled`, `downloaded` or `remote`."""
    files = find_model(name).files
    if not files:
        return "bundled"
    folder = cache.cache_dir() / name
    present = all((folder / fetch.file_name(url)).is_file() for url in files)
    return "downloaded" if present else "remote"
