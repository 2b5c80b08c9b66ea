"""Whatever in the package opens a file is tried with damaged ones, or says why it need not be."""

import ast
import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

import elmore
from tests.fuzz.test_readers import READERS

PACKAGE = Path(elmore.__file__).parent
OPENERS = {
    "open", "read_text", "read_bytes", "memmap", "fromfile", "load_file", "safe_open",
    "ParquetFile", "ZipFile", "File",
    "iterparse", "ParserCreate", "read_index", "read_json", "read_archive", "mapped",
}  # fmt: skip
"""Names of functions and methods that read files."""
PARSERS = {
    "json": {"load", "loads"},
    "tomllib": {"load", "loads"},
    "np": {"load"},
    "torch": {"load"},
}
"""Functions of modules that read what a file holds."""
OWN = {
    "elmore.atomic": "syncs what it wrote",
    "elmore.browser.compile": "reads sources of the package",
    "elmore.browser.site": "reads files of the package, and what it wrote",
    "elmore.cli": "opens the null device",
    "elmore.native_build": "reads sources of the package",
    "elmore.corpus.writer": "writes, and reads back what it wrote in this process",
    "elmore.embed.jobs.ray": "reads shards that the same job wrote into its own folder",
    "elmore.embed.jobs.writers": "writes",
    "elmore.integrations.allennlp": "writes",
    "elmore.integrations.spacy_embedder": "reads bytes of a model folder, which is covered",
    "elmore.lock": "tests/test_lock.py tries files that are no locks",
    "elmore.probe.change.corpora": "opens an index, which is covered",
    "elmore.probe.change.journal": "reads through config, which is covered, and its own test",
    "elmore.probe.neighbors.index": "`open` is its own name for what columns reads",
    "elmore.probe.reporting.page": "reads a style sheet of the package",
    "elmore.probe.neighbors.faiss_search": "its own test tries files that faiss cannot read",
    "elmore.serve.metrics": "reads /proc",
    "elmore.serve.page": "reads files of the package",
    "elmore.tasks.results": "reads test.json through config, which is covered",
    "elmore.tasks.train": "matches what config read, which is covered",
    "elmore.tasks.sweep": "reads recipe.json through config, which is covered",
    "elmore.train.saved_recipe": "reads recipe.json through config, which is covered",
    "elmore.weights.catalogue": "reads files of the package",
    "elmore.weights.pretrained": "takes any bytes for the text of a licence",
}
"""Modules in which such a call is not of a file from outside, or is covered through another."""
STRICT = {"elmore.strict_json", "elmore.npy"}
"""The only ones that may parse JSON, or arrays, of a file."""
UNTRUSTED_NO_MORE = {
    "elmore.train.saved_recipe",
    "elmore.embed.jobs.ray",
    "elmore.weights.catalogue",
}
"""They parse JSON that this process, or the package itself, wrote."""


_PARSING = {("json", "loads"), ("json", "load"), ("np", "load")}


@functools.cache
def modules() -> dict[str, set[tuple[str, str]]]:
    """Give what each module calls: the name before the last dot, and the last."""
    result = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(["elmore", *path.relative_to(PACKAGE).with_suffix("").parts])
        tree = ast.parse(path.read_text(encoding="utf-8"))
        result[name.removesuffix(".__init__")] = set(calls(tree))
    return result


def calls(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name):
                yield "", called.id
            elif isinstance(called, ast.Attribute):
                yield getattr(called.value, "id", ""), called.attr


def opens_files(called: set[tuple[str, str]]) -> bool:
    return any(name in OPENERS or name in PARSERS.get(before, set()) for before, name in called)


COVERED = {module for reader in READERS for module in reader.modules}


def test_every_module_that_opens_files_is_covered():
    opening = {
        name
        for name, called in modules().items()
        if opens_files(called) and not name.startswith("elmore.cli.")  # they ask the rooms to
    }
    missing = opening - COVERED - set(OWN) - STRICT
    assert not missing, f"add a reader to tests/fuzz for {', '.join(sorted(missing))}"


@pytest.mark.parametrize("name", sorted(COVERED | set(OWN)))
def test_modules_listed_as_covered_exist(name):
    assert importlib.util.find_spec(name) is not None


def test_only_the_strict_readers_parse_json_and_arrays():
    parsing = {n for n, called in modules().items() if not _PARSING.isdisjoint(called)}
    assert parsing <= STRICT | UNTRUSTED_NO_MORE, "use strict_json or npy"
