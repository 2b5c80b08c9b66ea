"""The command line: one module per command, imported only when it runs.

Results go to stdout, everything else to stderr. An error that the user can fix is one sentence and
exit status 1.
"""

import importlib
import io
import logging
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from elmore import __version__
from elmore.errors import ElmoreError
from elmore.extras import TORCH_PACKAGES, has_torch, say_missing

COMMANDS = (
    "embed",
    "models",
    "info",
    "convert",
    "prepare",
    "pretrain",
    "finetune",
    "evaluate",
    "score",
    "surprisal",
    "task",
    "probe",
    "neighbors",
    "change",
    "report",
    "serve",
    "export",
)


class _Commands(TyperGroup):
    """Loads commands on demand; their modules import nothing heavy, so that `--help` is fast."""

    def list_commands(self, ctx: object) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: object, cmd_name: str) -> Any:  # noqa: ANN401 -- click's own type
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f"elmore.cli.{cmd_name}"), cmd_name)
        if isinstance(command, typer.Typer):  # a group of commands
            return typer.main.get_group(command)
        app = typer.Typer(add_completion=False)
        app.command(name=cmd_name)(command)
        return typer.main.get_command(app)


def _root() -> Any:  # noqa: ANN401 -- click's own type
    app = typer.Typer(
        cls=_Commands,
        name="elmore",
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def elmore(
        version: bool = typer.Option(
            False, "--version", callback=_show_version, is_eager=True, help="Show the version."
        ),
        verbose: bool = typer.Option(False, "--verbose", "-v", help="Log more on stderr."),
    ) -> None:
        """Deep contextualized word representations (ELMo)."""
        level = logging.INFO if verbose else logging.WARNING
        logging.basicConfig(level=level, format="%(message)s", stream=sys.stderr)

    return typer.main.get_command(app)


def _show_version(requested: bool) -> None:
    if requested:
        print(f"elmore {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # the terminal may support only ASCII
    try:
        _root()(prog_name="elmore")
    except ElmoreError as error:
        _exit_with(str(error))
    except ModuleNotFoundError as error:
        if error.name not in TORCH_PACKAGES:
            raise
        _exit_with(say_missing("this command", error.name if has_torch() else "torch"))
    except BrokenPipeError:  # the reader has left
        sys.exit(1)
    except OSError as error:
        prefix = f"{error.filename}: " if error.filename else ""
        _exit_with(f"{prefix}{error.strerror or error}")
    finally:
        _flush_stdout()


def _flush_stdout() -> None:
    """Write what is left; into a closed pipe without the message that Python prints at its end."""
    stdout = sys.__stdout__
    if stdout is None:
        return
    try:
        stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
        sys.exit(1)


def _exit_with(sentence: str) -> None:
    print(f"elmore: {' '.join(sentence.split())}", file=sys.stderr)
    sys.exit(1)
