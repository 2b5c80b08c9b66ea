"""The notebooks in `examples/` run from top to bottom in a kernel, and are stored as they ran."""

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples").glob("*.ipynb"))

pytestmark = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell):
    """Give the kinds of results of a cell; what a command prints on the way is not one."""
    return [output.output_type for output in cell.outputs if output.output_type != "stream"]


def test_a_notebook_runs(path, tmp_path, monkeypatch):
    stored = nbformat.read(path, as_version=4)
    run = nbformat.read(path, as_version=4)
    programs = Path(sys.executable).parent  # where `elmore` is, if the environment is not active
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    resources = {"metadata": {"path": str(tmp_path)}}
    patience = {"timeout": 300, "startup_timeout": 300}
    NotebookClient(run, kernel_name="python3", resources=resources, **patience).execute()
    assert list(map(shown, code_cells(run))) == list(map(shown, code_cells(stored)))


def test_a_notebook_is_stored_as_it_ran(path):
    stored = nbformat.read(path, as_version=4)
    nbformat.validate(stored)
    cells = code_cells(stored)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert any(map(shown, cells))
    assert "error" not in {kind for cell in cells for kind in shown(cell)}
