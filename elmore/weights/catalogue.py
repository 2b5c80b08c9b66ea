"""The models known by name: what they are and where their files were last said to be."""

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
    """A published model; one with no files comes with the package."""

    language: str
    licence: str
    data: str
    files: tuple[str, ...] = ()
    sha256: tuple[str, ...] = ()


def known() -> dict[str, Entry]:
    """Give the models by name, the bundled one first."""
    room = resources.files("elmore.weights")
    card = json.loads((room / "bundled" / "config.json").read_text(encoding="utf-8"))["card"]
    bundled = Entry(language=card["language"], licence=card["licence"], data=card["data"])
    published = tomllib.loads((room / "pretrained.toml").read_text(encoding="utf-8"))
    entries = {
        name: config.build(Entry, data, f"pretrained.toml: {name}")
        for name, data in published.items()
    }
    return {BUNDLED: bundled} | entries


def entry(name: str) -> Entry:
    """Give one of them, or say which name may have been meant."""
    entries = known()
    if name not in entries:
        hint = config.suggest(name, entries) or "'elmore models' lists the names"
        raise WeightsError(f"{name}: no such file or folder, and no model of that name; {hint}")
    return entries[name]


def state(name: str) -> str:
    """Say whether a model is here: bundled, downloaded, or still to be downloaded."""
    files = entry(name).files
    if not files:
        return "bundled"
    place = cache.folder() / name
    here = all((place / fetch.file_name(url)).is_file() for url in files)
    return "downloaded" if here else "remote"
