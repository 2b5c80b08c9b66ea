"""The core works with none of the extras installed."""

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

BLOCKED = """
import importlib, pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import elmore
names = [module.name for module in pkgutil.walk_packages(elmore.__path__, "elmore.")]
for name in names:
    if name.split(".")[1] in {core!r}:
        importlib.import_module(name)
print(len(names))
"""

MODULES = {
    "scikit-learn": "sklearn",
    "faiss-cpu": "faiss",
    "sentence-transformers": "sentence_transformers",
}
CORE = {
    "errors",
    "config",
    "atomic",
    "journal",
    "text",
    "corpus",
    "model",
    "train",
    "weights",
    "lm",
    "embed",
    "cli",
}


def package(requirement: str) -> str:
    name = requirement.split(">")[0].split("[")[0].split("=")[0].strip()
    return MODULES.get(name, name.replace("-", "_"))


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("huggingface", "transformers", "hf"),
        ("sentence_transformers", "sentence_transformers", "hf"),
    ],
)
def test_an_integration_without_its_framework_names_the_extra(monkeypatch, name, package, extra):
    for module in [package, *(key for key in sys.modules if key.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    for module in [key for key in sys.modules if key.startswith("elmore.integrations.")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(
        ImportError, match=rf"needs {package.replace('_', '-')}: pip install"
    ) as found:
        importlib.import_module(f"elmore.integrations.{name}")
    assert str(found.value).endswith(f"pip install 'elmore[{extra}]'")


def test_every_core_room_imports_without_any_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = {package(requirement) for requirement in project["dependencies"]}
    extras = {package(r) for group in project["optional-dependencies"].values() for r in group}
    code = BLOCKED.format(blocked=extras - core - {"elmore"}, core=CORE)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30
