"""The import table of CONTRIBUTING.md: which package may import which, and how long a file may be.

Every import is read wherever it is written, in functions too, so a circle cannot be hidden.
"""

import ast
import functools
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import elmore

PACKAGE = Path(elmore.__file__).parent
MAX_LINES = 400

BASE_MODULES = {"errors", "config", "atomic", "lock", "journal", "cache", "native_build", "recipes"}
BASE_MODULES |= {"strict_json", "npy", "numbers"}  # readers of what is not trusted
BASE_MODULES |= {"extras"}
MAY_IMPORT = {
    "text": set(),
    "model": set(),
    "train": set(),
    "corpus": {"text"},
    "weights": {"text", "model"},
    "lm": {"text", "corpus", "model", "weights", "train"},
    "embed": {"text", "model", "weights"},
    "browser": {"text", "model", "weights"},
    "tasks": {"text", "model", "weights", "embed", "train"},
    "probe": {"text", "corpus", "weights", "lm", "embed", "train", "tasks"},
    "serve": {"text", "weights", "lm", "embed", "browser", "tasks", "probe"},
    "integrations": {"text", "model", "weights", "embed", "tasks"},
}
MAY_IMPORT["cli"] = set(MAY_IMPORT)
CATCH_ALL = {"utils", "util", "helpers", "helper", "common", "misc", "base", "tools"}
FORBIDDEN_INSIDE = {"text": {"torch"}, "corpus": {"torch"}}  # so that every core prepares text


parse = functools.cache(ast.parse)  # every file is read by two tests


def imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Dotted names of every import, at the top and inside functions; relative ones resolved."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package.split(".")[: len(package.split(".")) - node.level + 1]
            stem = ".".join([*start, node.module] if node.module else start)
            base = stem if node.level else node.module or ""
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant):
                yield str(first.value)


def subpackage_of(name: str) -> str | None:
    """Return the subpackage of a dotted name; None for other packages and for base modules."""
    parts = name.split(".")
    if (
        parts[0] != "elmore"
        or len(parts) < 2
        or parts[1] in BASE_MODULES
        or parts[1].startswith("__")
    ):
        return None
    return parts[1]


def problems(package: Path) -> list[str]:
    """Return everything that breaks the rules."""
    result = []
    for path in sorted(package.rglob("*.py")):
        where = path.relative_to(package)
        text = path.read_text(encoding="utf-8")
        if len(text.splitlines()) > MAX_LINES:
            result.append(f"{where}: longer than {MAX_LINES} lines")
        if path.stem in CATCH_ALL or any(part in CATCH_ALL for part in where.parts):
            result.append(f"{where}: a catch-all")
        subpackage = where.parts[0].removesuffix(".py")
        if where in (Path("__init__.py"), Path("__main__.py")):
            continue  # the public face names what is inside
        if subpackage not in BASE_MODULES and subpackage not in MAY_IMPORT:
            result.append(f"{where}: not in the import table: {subpackage!r}")
            continue
        dotted = ".".join(["elmore", *where.parent.parts])
        result += import_problems(parse(text), subpackage, str(where), dotted)
    return result


def import_problems(tree: ast.AST, subpackage: str, where: str, package: str) -> list[str]:
    allowed = MAY_IMPORT.get(subpackage, set()) | ({subpackage} - BASE_MODULES)
    result = []
    for name in imports(tree, package):
        other = subpackage_of(name)
        if other and other in MAY_IMPORT and other not in allowed:
            result.append(f"{where}: {subpackage} must not import {other}")
        if name.split(".")[0] in FORBIDDEN_INSIDE.get(subpackage, set()):
            result.append(f"{where}: {subpackage} must not import {name}")
        if subpackage == "cli" and other == "integrations" and not where.endswith("export.py"):
            result.append(f"{where}: only cli/export may import integrations")
    return sorted(set(result))


def find_circle(package: Path) -> list[str]:
    """The files of an import circle, the first again at its end; none where there is no circle."""
    names = {}
    for path in package.rglob("*.py"):
        where = path.relative_to(package).with_suffix("")
        parts = where.parts[:-1] if where.name == "__init__" else where.parts
        if parts not in ((), ("__main__",)):  # the public face names what is inside
            names[".".join(["elmore", *parts])] = path
    graph = {}
    for name, path in names.items():
        inside = name if path.stem == "__init__" else name.rpartition(".")[0]
        result = set(imports(parse(path.read_text(encoding="utf-8")), inside))
        # `from a import b` names a and a.b: where a.b is a file, a is only the way to it
        ways = {one.rpartition(".")[0] for one in result & names.keys()}
        graph[name] = (result & names.keys()) - ways - {name}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_no_files_import_each_other_in_a_circle():
    assert find_circle(PACKAGE) == []


@pytest.mark.parametrize(
    "back",
    [
        "from elmore.model import lstm",
        "import elmore.model.lstm",
        "from .lstm import LSTM",
        "def f():\n    from elmore.model.lstm import LSTM",
        "if TYPE_CHECKING:\n    from elmore.model.lstm import LSTM",
    ],
)
def test_an_import_cycle_inside_one_package_is_found(tmp_path, back):
    package = house(tmp_path, model__bilm="from elmore.model.lstm import LSTM", model__lstm="")
    assert find_circle(package) == []
    (package / "model" / "lstm.py").write_text("from elmore.model import cell")
    (package / "model" / "cell.py").write_text("from elmore.model.bilm import BiLM")
    assert len(set(find_circle(package))) == 3
    (package / "model" / "cell.py").write_text(back)
    assert set(find_circle(package)) == {"elmore.model.cell", "elmore.model.lstm"}


def test_imports_follow_the_table_and_files_are_short():
    assert problems(PACKAGE) == []


def test_the_import_table_has_no_cycle():
    """Each subpackage can be ordered after all that it imports."""
    placed: set[str] = set()
    while len(placed) < len(MAY_IMPORT):
        ready = {
            subpackage for subpackage, below in MAY_IMPORT.items() if below - {subpackage} <= placed
        } - placed
        assert ready, f"a circle among {sorted(set(MAY_IMPORT) - placed)}"
        placed |= ready


def house(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        path = tmp_path / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "line",
    [
        "import elmore.weights.folder",
        "from elmore.weights import folder",
        "from elmore import weights",
        "from ..weights import folder",
        "def f():\n    from elmore.weights.folder import load",
        "class A:\n    def f(self):\n        import elmore.cli",
        "import importlib\nimportlib.import_module('elmore.weights.folder')",
    ],
)
def test_an_upward_import_is_refused_wherever_it_is_written(tmp_path, line):
    (problem,) = problems(house(tmp_path, model__lstm=line))
    assert "model must not import" in problem


def test_torch_is_refused_in_the_text_package(tmp_path):
    assert problems(house(tmp_path, text__words="def f():\n    import torch"))


def test_base_modules_import_no_package(tmp_path):
    assert problems(house(tmp_path, errors="from elmore.text import tokenizers"))


@pytest.mark.parametrize("name", ["utils", "model__utils", "text__common", "helpers__words"])
def test_a_catch_all_is_refused(tmp_path, name):
    assert problems(house(tmp_path, **{name: "x = 1"}))


def test_a_package_missing_from_the_import_table_is_refused(tmp_path):
    assert problems(house(tmp_path, extra__thing="x = 1")) == [
        "extra/thing.py: not in the import table: 'extra'"
    ]


def test_a_file_that_is_too_long_is_refused(tmp_path):
    assert problems(house(tmp_path, model__lstm="x = 1\n" * (MAX_LINES + 1)))


def test_a_downward_import_is_fine(tmp_path):
    fine = "from elmore.model import bilm\nfrom elmore.errors import DataError\nimport elmore"
    assert problems(house(tmp_path, weights__folder=fine)) == []
