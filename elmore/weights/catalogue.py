"""The models known by name: what they are and where their files were last said to be."""

import json
import tomllib
from dataclasses import dataclass
from importlib import resources

from elmore import config
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


def state(name: str) -> str:
    """Say whether a model is here: bundled, downloaded, or still to be downloaded."""
    entry = known()[name]
    if not entry.files:
        return "bundled"
    place = fetch.cache_folder() / name
    here = all((place / url.rsplit("/", 1)[-1]).is_file() for url in entry.files)
    return "downloaded" if here else "remote"
