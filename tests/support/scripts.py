"""Run a script of the repository in this process: another would import torch again.

Used by tests/test_readme, test_scripts, test_teach, integrations/test_huggingface_docs and, through
`shell_commands`, wherever the commands of a page are read.
"""

import argparse
import contextlib
import io
import runpy
import sys
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[2]


def run_script(path: str, *arguments: str) -> str:
    """Return what `python PATH ARGUMENTS` prints in the root of the repository."""
    out, folder, before = io.StringIO(), ROOT / Path(path).parent, set(sys.modules)
    try:
        with (
            contextlib.chdir(ROOT),
            contextlib.redirect_stdout(out),
            mock.patch.object(sys, "argv", [path, *arguments]),
            mock.patch.object(sys, "path", [str(folder), *sys.path]),
        ):
            runpy.run_path(str(ROOT / path), run_name="__main__")
    finally:
        for name in set(sys.modules) - before:  # its neighbours are not on the path of others
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and Path(file).parent == folder:
                del sys.modules[name]
    return out.getvalue()


def find_refusal(path: str, *arguments: str) -> str:
    """Return the sentence with which a script refuses its arguments, or nothing.

    The script is run until it has parsed them. One without a parser is not run, for its work would
    begin; it has no options.
    """
    if not (ROOT / path).is_file():
        return f"there is no {path}"
    if not has_parser(path):
        options = [each for each in arguments if each.startswith("--")]
        return f"{path} has no {options}" if options else ""
    parse_args = argparse.ArgumentParser.parse_args

    def parse(parser: argparse.ArgumentParser) -> None:
        parse_args(parser)
        parser.exit()

    message = io.StringIO()
    with (
        contextlib.redirect_stderr(message),
        mock.patch.object(argparse.ArgumentParser, "parse_args", parse),
    ):
        try:
            run_script(path, *arguments)
        except SystemExit as end:
            return f"{end.code}: {message.getvalue()}" if end.code else ""
    return f"{path} parsed nothing"


def has_parser(path: str) -> bool:
    """Return whether a script reads its arguments with argparse."""
    return "ArgumentParser(" in (ROOT / path).read_text(encoding="utf-8")
