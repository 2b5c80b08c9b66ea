"""Run an `elmore` command in this process: importing torch for each would take the suite minutes.

Used by tests/cli and by every test that needs what a command prints.
"""

import contextlib
import io
import sys
from typing import NamedTuple
from unittest import mock

from elmore import cli


class Result(NamedTuple):
    code: int
    out: str
    err: str


def run_elmore(*arguments: str) -> Result:
    """Give what `elmore ARGUMENTS` prints and exits with."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["elmore", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
            code = 0
        except SystemExit as exit_:
            code = exit_.code or 0
    return Result(int(code), out.getvalue(), err.getvalue())
