"""benchmarks/elmore_command.py: a command of elmore ends with the script that started it."""

import contextlib
import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from elmore import __version__
from tests.support.cli_processes import is_running
from tests.support.scripts import ROOT
from tests.support.waiting import wait_until

# `elmore score` waits for lines on stdin, which the test holds open.
TRAIN_IN_TIME = """
import time, pathlib, train_in_time
out = pathlib.Path(sys.argv[1])
job = train_in_time.Job("tiny", out, out, out, [], 0.0, "cpu", None, None, [])
train_in_time.start(job, ["score", "-"]).wait()
"""
GRID = """
import pathlib, grid
job = grid.Job("a job", ["score", "-"], lambda _: {}, {})
grid.run(lambda _: [job], pathlib.Path(sys.argv[1]), at_once=1)
"""


@pytest.fixture
def elmore_command(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module("elmore_command").elmore_command
    sys.modules.pop("elmore_command")


def elmore_children(pid):
    """Return the `elmore` processes that any thread of a process has started."""
    found = []
    with contextlib.suppress(OSError):  # a thread or a process has ended in between
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, path.read_text().split()):
                words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                found += [child] if words[1:3] == [b"-m", b"elmore"] else []
    return found


@pytest.mark.skipif(
    not Path(f"/proc/self/task/{os.getpid()}/children").exists(), reason="needs /proc of Linux"
)
@pytest.mark.parametrize("code", [TRAIN_IN_TIME, GRID], ids=["train_in_time", "grid"])
def test_a_command_ends_when_its_script_is_killed(code, tmp_path):
    path = f"import sys; sys.path.insert(0, {str(ROOT / 'benchmarks')!r})"
    command = [sys.executable, "-c", path + code, str(tmp_path)]
    data = {"ELMORE_DATA": str(tmp_path)}  # named, not read
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, cwd=ROOT, env={**os.environ, **data}
    ) as script:
        wait_until(lambda: elmore_children(script.pid) or script.poll() is not None)
        (started,) = elmore_children(script.pid)
        script.kill()
        script.wait()
        try:
            wait_until(lambda: not is_running(started), seconds=20)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(started, signal.SIGKILL)


def test_a_command_is_that_of_elmore(elmore_command):
    done = subprocess.run(elmore_command(["--version"]), capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"elmore {__version__}\n", "")
    refused = subprocess.run(elmore_command(["sing"]), capture_output=True, cwd=ROOT)
    assert refused.returncode == 2


def test_a_command_whose_script_has_gone_already_does_not_start(elmore_command, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)  # a new process has another parent then
        command = elmore_command(["--version"])
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (1, "")
    assert "the script that started this has ended" in done.stderr
