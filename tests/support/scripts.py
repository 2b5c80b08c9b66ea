"""Run a script of the repository in this process: another would import torch again.

Used by tests/test_readme, tests/test_teach and integrations/test_huggingface_docs.
"""

import contextlib
import io
import runpy
import sys
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[2]


def run_script(path: str, *arguments: str) -> str:
    """Return what `python PATH ARGUMENTS` prints in the root of the repository."""
    out = io.StringIO()
    with (
        contextlib.chdir(ROOT),
        contextlib.redirect_stdout(out),
        mock.patch.object(sys, "argv", [path, *arguments]),
        mock.patch.object(sys, "path", [str(ROOT / Path(path).parent), *sys.path]),
    ):
        runpy.run_path(str(ROOT / path), run_name="__main__")
    return out.getvalue()
