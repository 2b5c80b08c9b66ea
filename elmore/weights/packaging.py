"""Make a package of a model, which pip installs and `elmore.load` finds by its name.

A package has one folder with the model and its checksums, and registers it (`packages.py`):

    elmore_model_english_large/__init__.py                     a docstring
    elmore_model_english_large/config.json                     and config.json.sha256
    elmore_model_english_large/model.safetensors               and model.safetensors.sha256
    elmore_model_english_large/softmax.safetensors             and softmax.safetensors.sha256
    elmore_model_english_large/vocabulary.txt                  and vocabulary.txt.sha256
    elmore_model_english_large/poolings.npz                    and poolings.npz.sha256
    elmore_model_english_large/whitening.npz                   and whitening.npz.sha256
    elmore_model_english_large/README.md                       the card, and LICENSE if there is one

It is written as a wheel, or as the source of one: this folder and a pyproject.toml.
"""

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elmore import __version__, atomic
from elmore.errors import ConfigError, ElmoreError
from elmore.weights import catalogue, checksums, folder, packages, pretrained
from elmore.weights.bundle import Bundle, Card
from elmore.weights.card import render_card
from elmore.weights.wheel import write_wheel

_PREFIX = "elmore-model-"
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_NUMBER = "(0|[1-9][0-9]*)"
_VERSION = re.compile(
    rf"{_NUMBER}(\.{_NUMBER})*((a|b|rc){_NUMBER})?(\.post{_NUMBER})?(\.dev{_NUMBER})?"
)
_PYTHON = ">=3.11"
_LICENCES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "LICENCE.txt", "LICENCE.md")


@dataclass(frozen=True)
class _Package:
    """A checked model that is to be written as a package."""

    name: str
    version: str
    card: Card
    readme: str
    files: Mapping[str, bytes | Path]
    """Content of the package folder, by file name."""

    @property
    def distribution(self) -> str:
        return _PREFIX + self.name

    @property
    def module(self) -> str:
        return self.distribution.replace("-", "_")

    @property
    def summary(self) -> str:
        language = f", {_one_line(self.card.language)}" if self.card.language else ""
        return f"{self.name}{language}: contextual word vectors (ELMo), a model for elmore"

    @property
    def licence_file(self) -> str | None:
        return next((name for name in _LICENCES if name in self.files), None)


def package_model(
    source: str | Path,
    destination: Path,
    *,
    name: str | None = None,
    version: str = "1.0.0",
    as_source: bool = False,
    overwrite: bool = False,
) -> Path:
    """Check a model, then write its wheel, or the source of the wheel.

    Args:
        source: A model folder, a run, or a name.
        destination: The folder to write `elmore_model_NAME-VERSION-py3-none-any.whl` into, or the
            source folder `NAME`.
        name: Name of the model for `elmore.load`; by default that of its card or folder.
        version: Version of the package.
        as_source: Write the source.
        overwrite: Replace an existing wheel or source.

    Returns:
        The path of the wheel or of the source folder.

    Raises:
        ConfigError: The name or the version is not valid, or another model has the name.
        WeightsError: The model is damaged.
        ElmoreError: The destination exists.
    """
    package = _read_package(source, name, version)
    write = _write_source if as_source else _write_wheel
    return write(package, destination, overwrite=overwrite)


def _read_package(source: str | Path, name: str | None, version: str) -> _Package:
    """Check a model and collect what its package contains."""
    if not _VERSION.fullmatch(version):
        raise ConfigError(
            f"version {version!r}: expected a version as in PEP 440, normalized, such as 1.0.0 or "
            "1.1rc1"
        )
    if name is not None:  # before the model is read, which may take long
        _check_name(name)
    model_path = pretrained.model_folder(source)
    present = [one for one in sorted(folder.FILES - {"README.md"}) if (model_path / one).is_file()]
    recorded = [one for one in present if checksums.record_path(model_path / one).is_file()]
    checksums.verify(model_path, recorded, advice="make or copy the model again")
    bundle = folder.load(model_path)
    name = name or bundle.card.name or Path(source).resolve().name
    _check_name(name)
    files: dict[str, bytes | Path] = {
        "__init__.py": f'"""The model {name}: elmore.load("{name}")."""\n'.encode()
    }
    for one in present:
        digest = checksums.file_sha256(model_path / one)
        files[one] = model_path / one
        files[checksums.record_path(model_path / one).name] = f"{digest}  {one}\n".encode()
    readme = _read_readme(model_path, bundle, name)
    files["README.md"] = readme.encode()
    files |= {one: model_path / one for one in _LICENCES if (model_path / one).is_file()}
    return _Package(name, version, bundle.card, readme, files)


def _read_readme(model_path: Path, bundle: Bundle, name: str) -> str:
    """Return the README.md of a model, or its card, with the name that loads the package."""
    path = model_path / "README.md"
    text = path.read_text("utf-8", "replace") if path.is_file() else render_card(bundle, name)
    text = re.sub(r'elmore\.load\("path/to/[^"\n]*"\)', f'elmore.load("{name}")', text)
    return text.encode("utf-8", "replace").decode()  # a card may have unpaired surrogates


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"model name {name!r}: expected lower-case letters, digits and single hyphens, because "
            f"the package is called {_PREFIX}NAME; pass --name"
        )
    entry = catalogue.listed_models().get(name)
    if entry is not None and not entry.package:
        what = "a published" if entry.files else "the bundled"
        raise ConfigError(f"model name {name!r}: the name of {what} model; pass another --name")


def _write_wheel(package: _Package, destination: Path, *, overwrite: bool) -> Path:
    stem = f"{package.module}-{package.version}"
    path = destination / f"{stem}-py3-none-any.whl"
    if path.exists() and not overwrite:
        raise ElmoreError(f"{path} exists already; pass another folder, or --overwrite")
    content = {f"{package.module}/{name}": data for name, data in package.files.items()}
    dist_info = f"{stem}.dist-info"
    if package.licence_file:
        copy = f"{dist_info}/licenses/{package.module}/{package.licence_file}"
        content[copy] = package.files[package.licence_file]
    content[f"{dist_info}/METADATA"] = _render_metadata(package).encode()
    content[f"{dist_info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: elmore {__version__}\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n"
    ).encode()
    points = f"[{packages.GROUP}]\n{package.name} = {package.module}\n"
    content[f"{dist_info}/entry_points.txt"] = points.encode()
    destination.mkdir(parents=True, exist_ok=True)
    with atomic.file(path) as file:
        write_wheel(file, content, dist_info)
    return path


def _render_metadata(package: _Package) -> str:
    licence = _one_line(package.card.licence)
    headers = {
        "Metadata-Version": "2.4",
        "Name": package.distribution,
        "Version": package.version,
        "Summary": package.summary,
        "License": licence,
        "License-File": f"{package.module}/{package.licence_file}" if package.licence_file else "",
        "Requires-Python": _PYTHON,
        "Requires-Dist": f"elmore>={__version__}",
        "Description-Content-Type": "text/markdown",
    }
    lines = [f"{key}: {value}\n" for key, value in headers.items() if value]
    return f"{''.join(lines)}\n{package.readme}"


def _write_source(package: _Package, destination: Path, *, overwrite: bool) -> Path:
    path = destination / package.name
    replaces = frozenset({"pyproject.toml", package.module}) if overwrite else frozenset()
    with atomic.folder(path, replaces=replaces, is_ours=_is_source) as new:
        (new / "pyproject.toml").write_text(_render_pyproject(package), encoding="utf-8")
        (new / package.module).mkdir()
        for name, data in package.files.items():
            if isinstance(data, Path):
                shutil.copyfile(data, new / package.module / name)
            else:
                (new / package.module / name).write_bytes(data)
    return path


def _is_source(path: Path) -> bool:
    project = path / "pyproject.toml"
    return project.is_file() and f'"{packages.GROUP}"' in project.read_text("utf-8", "replace")


def _render_pyproject(package: _Package) -> str:
    licence = _one_line(package.card.licence)
    lines = {
        "name": _quote(package.distribution),
        "version": _quote(package.version),
        "description": _quote(package.summary),
        "readme": _quote(f"{package.module}/README.md"),
        "license": f"{{ text = {_quote(licence)} }}" if licence else "",
        "requires-python": _quote(_PYTHON),
        "dependencies": f"[{_quote(f'elmore>={__version__}')}]",
    }
    project = "".join(f"{key} = {value}\n" for key, value in lines.items() if value)
    return f"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
{project}
[project.entry-points."{packages.GROUP}"]
{package.name} = {_quote(package.module)}

[tool.hatch.build]
ignore-vcs = true # a .gitignore above may have *.safetensors

[tool.hatch.build.targets.wheel]
packages = [{_quote(package.module)}]
"""


def _quote(text: str) -> str:
    """Return a string as TOML has it."""
    return json.dumps(text, ensure_ascii=False)


def _one_line(text: str) -> str:
    """Return text for a header: without line breaks and control characters."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable())
