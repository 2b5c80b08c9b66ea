"""Run an `elmore` command in this process: importing torch for each would take the suite minutes.

Used by tests/cli and by every test that needs what a command prints.
"""

import contextlib
import io
import math
import sys
from typing import NamedTuple
from unittest import mock

from elmore import cli
from elmore.cli import progress


class Result(NamedTuple):
    code: int
    out: str
    err: str


def run_elmore(*arguments: str) -> Result:
    """Return what `elmore ARGUMENTS` prints and its exit code.

    It shows no progress, which depends on the time a command takes.
    """
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["elmore", *arguments]),
        mock.patch.object(progress, "_PIPE", math.inf),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
            code = 0
        except SystemExit as exit_:
            code = exit_.code or 0
    return Result(int(code), out.getvalue(), err.getvalue())
