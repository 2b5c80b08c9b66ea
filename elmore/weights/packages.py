"""Installed model packages: distributions that register a model by an entry point.

    [project.entry-points."elmore.models"]
    english-large = "elmore_model_english_large"

The name is that of the model, the value a package whose folder is a model folder with checksums.
The folder is located without importing the package: none of its code runs.
"""

import contextlib
import importlib.util
import re
from importlib import metadata, resources
from pathlib import Path
from typing import NamedTuple

from elmore.errors import WeightsError

GROUP = "elmore.models"
REINSTALL = "pip install --force-reinstall --no-deps"
CHECKOUT = Path(str(resources.files("elmore"))).parent
"""The folder of the source, where elmore runs from it; it has the sources of models, too."""


class ModelPackage(NamedTuple):
    """An installed distribution that registers a model."""

    distribution: str
    version: str
    module: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"

    @property
    def advice(self) -> str:
        """How to install a damaged package again."""
        return f"reinstall it: {REINSTALL} {wheel_path(self.distribution, self.version)}"


def installed_packages() -> dict[str, list[ModelPackage]]:
    """Return the installed packages of each model name; several packages are a conflict."""
    by_name: dict[str, dict[str, ModelPackage]] = {}
    for distribution in metadata.distributions():
        try:
            for point in distribution.entry_points.select(group=GROUP):
                # Each of these parses all metadata of the distribution, which takes long.
                name, version = distribution.name, distribution.version
                if not name or not version:
                    continue  # pip ignores a nameless one too
                # One further down the path is hidden by the first.
                package = ModelPackage(name, version, point.value)
                by_name.setdefault(point.name, {}).setdefault(name, package)
        except (TypeError, ValueError, LookupError, AttributeError, OSError):
            continue  # damaged metadata, of any package on this machine
    return {name: list(packages.values()) for name, packages in by_name.items()}


def install_source(name: str, distribution: str) -> str:
    """Return what pip installs a listed model from: its folder in a checkout, else its wheel."""
    source = CHECKOUT / "models" / name
    if not (source / "pyproject.toml").is_file():
        return wheel_path(distribution)
    if source.is_relative_to(Path.cwd()):  # pip takes a path only if it looks like one
        return f"./{source.relative_to(Path.cwd()).as_posix()}"
    return str(source)


def wheel_path(distribution: str, version: str = "VERSION") -> str:
    """Return the path of a wheel for a message; no index has it, so pip must not get its name."""
    return f"PATH/{re.sub('[-_.]+', '_', distribution)}-{version}-py3-none-any.whl"


def package_folder(package: ModelPackage) -> Path:
    """Return the folder of a model package.

    Raises:
        WeightsError: The package that was registered is not there.
    """
    places = None
    if package.module.isidentifier():  # finding a submodule would import its parents
        with contextlib.suppress(ImportError, ValueError):  # such as __main__
            spec = importlib.util.find_spec(package.module)
            places = spec.submodule_search_locations if spec else None
    if not places:
        raise WeightsError(
            f"{package} registers the package {package.module[:80]!r} as a model, but there is no "
            f"such package; {package.advice}"
        )
    return Path(next(iter(places)))
