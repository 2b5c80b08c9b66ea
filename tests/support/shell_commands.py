"""Parse and run the shell commands of the docs, as far as they go: words, pipes, `>`.

Used by tests/test_docs, test_guides, integrations/test_onnx and integrations/test_ray.
"""

import io
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from torch.distributed.run import get_args_parser
from typer.core import TyperCommand

from tests.support import cli_processes
from tests.support.cli_runner import Result, run_elmore
from tests.support.scripts import find_refusal

ROOT = Path(__file__).parents[2]
# Programs of others, of which there is nothing to know here.
OTHERS = {".", "cat", "cp", "curl", "echo", "export", "git", "jupytext", "pip", "python3"}


class Command(NamedTuple):
    """A program with its arguments."""

    program: str
    arguments: list[str]
    into: str | None
    """The file behind `>`."""


def commands(line: str) -> Iterator[Command]:
    """The commands of a line, whether joined by `|` or `&&`."""
    reader = shlex.shlex(line, posix=True, punctuation_chars="|&;>")
    reader.whitespace_split = True
    words: list[str] = []
    for word in [*reader, ";"]:
        if re.fullmatch(r"[|&;]+", word):
            if words:
                yield _command(words)
            words = []
        else:
            words.append(word)


def _command(words: list[str]) -> Command:
    into = None
    if ">" in words:
        position = words.index(">")
        words, into = words[:position], words[position + 1]
    while re.match(r"[A-Z_]+=", words[0]):  # the environment of this one command
        words = words[1:]
    return Command(words[0], words[1:], into)


def run(line: str, change=lambda arguments: arguments) -> Command:
    """Run a line that ends in an `elmore` command, whose arguments may be changed before."""
    *before, last = commands(line)
    if last.program == "torchrun":
        _run_ranks(last.arguments, change)
        return last
    assert last.program == "elmore", line
    fed = b""
    for one in before:
        words = [one.program, *one.arguments]
        fed = subprocess.run(words, input=fed, capture_output=True, check=True).stdout
    with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(fed))):
        result = run_elmore(*change(last.arguments))
    assert result.code == 0, (line, result.err)
    if last.into:
        Path(last.into).write_text(result.out)
    return last


def _run_ranks(arguments: list[str], change: Callable[[list[str]], list[str]]) -> None:
    """Start what torchrun would start, in forked processes; test_resume runs torchrun itself."""
    options = get_args_parser().parse_args(arguments)
    assert options.module
    assert options.training_script == "elmore"
    command = change(options.training_script_args)
    for result in cli_processes.run(*command, ranks=int(options.nproc_per_node)):
        assert result.code == 0, (arguments, result.err)


def from_usage(line: str) -> str:
    """The command that a usage shows: with what it may leave out, and numbers for values."""
    return re.sub(r"(--[a-z-]+) [A-Z]+(?!\S)", r"\1 1", re.sub(r"[\[\]]|\.{3}", "", line))


def find_refusals(line: str) -> list[str]:
    """The commands, scripts and options of a line that are not there; nothing is run."""
    line = re.sub(r"\$\(\(.*?\)\)(?!\))", "0", line)  # what a shell adds up is a number
    return [problem for command in commands(line) if (problem := _find_problem(command))]


def _find_problem(command: Command) -> str:
    program, arguments, _ = command
    if program == "taskset":  # -c CORES, and what runs on them
        _, _, program, *arguments = arguments
    if program == "torchrun":  # what is behind -m is what it runs
        position = arguments.index("-m") + 1
        program, arguments = arguments[position], arguments[position + 1 :]
    if program == "elmore":
        result = parse_only(*arguments)
        return result.err if result.code else ""
    if program == "python":
        return find_refusal(*arguments)
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        return "" if set(arguments) <= set(targets) else f"make has no {arguments}"
    return "" if program in OTHERS else f"what is {program}?"


def parse_only(*arguments: str) -> Result:
    """Let the command line read its arguments, and do nothing."""
    with mock.patch.object(TyperCommand, "invoke", return_value=None):
        return run_elmore(*arguments)
