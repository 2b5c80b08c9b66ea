"""The scripts of benchmarks, examples and docs: each reads its arguments as its docstring says.

Nothing is measured: a script ends as soon as it has parsed its command line.
"""

import ast
import re

import pytest

from tests.support import shell_commands
from tests.support.scripts import ROOT, has_parser, run_script

FOLDERS = ("benchmarks", "examples", "docs/figures")


def scripts(*folders: str) -> list[str]:
    """What is run by name, below some folders."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [str(path.relative_to(ROOT)) for path in paths if "__main__" in path.read_text("utf-8")]


def usages(path: str) -> list[str]:
    """The commands in the docstring of a script, on one line each."""
    text = ast.get_docstring(ast.parse((ROOT / path).read_text("utf-8"))) or ""
    text = re.sub(r"\\\n|\n {8,}(?=\[)", " ", text)
    return re.findall(
        r"^ *(?:setsid |OMP_NUM_THREADS=1 )?(python \S+\.py\b.*?)(?: &)?$", text, re.MULTILINE
    )


@pytest.fixture(autouse=True)
def no_data(monkeypatch):
    """Whoever asks what a script does has not set anything up."""
    monkeypatch.delenv("ELMORE_DATA", raising=False)


@pytest.mark.parametrize("path", scripts("benchmarks"))
def test_a_benchmark_says_how_it_is_called(path):
    assert has_parser(path), f"{path} --help would begin to measure"
    with pytest.raises(SystemExit) as end:
        run_script(path, "--help")
    assert end.value.code == 0


@pytest.mark.parametrize("path", scripts(*FOLDERS))
def test_a_docstring_shows_commands_that_could_be_run(path):
    lines = usages(path)
    assert lines
    for line in lines:
        assert f" {path}" in line
        assert shell_commands.find_refusals(shell_commands.from_usage(line)) == [], line


def test_all_scripts_are_found():
    found = scripts(*FOLDERS)
    assert {"benchmarks/paper.py", "benchmarks/corpus/build.py", "docs/figures/uses.py"} < {*found}
    assert "benchmarks/grid.py" not in found
