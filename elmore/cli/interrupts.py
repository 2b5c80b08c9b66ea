"""Ctrl-C during a long command."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def exit_on_interrupt(advice: str = "") -> Iterator[None]:
    """Exit with 130, as shells do, instead of a traceback; `advice` says how to continue."""
    try:
        yield
    except KeyboardInterrupt as error:
        print(f"elmore: stopped{advice and '; '}{advice}", file=sys.stderr)
        raise typer.Exit(130) from error
