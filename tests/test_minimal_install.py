"""The core works with none of the extras installed."""

import subprocess
import sys
import tomllib
from pathlib import Path

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
import elmore.integrations.allennlp
print(len(names))
print(elmore.load().embed(["It works ."])[0].vectors.shape)
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
    "lock",
    "journal",
    "cache",
    "native_build",
    "text",
    "corpus",
    "model",
    "train",
    "weights",
    "lm",
    "embed",
    "browser",
    "tasks",
    "probe",
    "cli",
}


def package(requirement: str) -> str:
    name = requirement.split(">")[0].split("[")[0].split("=")[0].strip()
    return MODULES.get(name, name.replace("-", "_"))


def test_the_hub_is_required_only_where_it_is_used():
    """Flair and elmore need different versions of it, and install together without it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not [name for name in project["dependencies"] if name.startswith("huggingface")]
    assert any(name.startswith("huggingface") for name in project["optional-dependencies"]["hf"])


def test_every_core_package_imports_and_reads_without_any_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = {package(requirement) for requirement in project["dependencies"]}
    extras = {package(r) for group in project["optional-dependencies"].values() for r in group}
    # contracts/test_without_torch.py hides torch too
    code = BLOCKED.format(blocked=extras - core - {"elmore", "torch", "h5py"}, core=CORE)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    count, shape = done.stdout.splitlines()
    assert int(count) > 30
    assert shape == "(3, 512)"
