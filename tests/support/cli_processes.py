"""Run `elmore` in processes of its own, which can be killed at a chosen step.

They are forked from a process that has imported torch already, which saves seconds each. Output
goes to files; several ranks find each other through torchrun's environment variables.

Used by the tests that kill and resume: cli/test_embed, cli/test_prepare, contracts/test_ranks,
contracts/test_resume, contracts/test_task_resume, probe/neighbors/test_writer; and by
benchmarks/test_elmore_command.
"""

import contextlib
import importlib
import itertools
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from tests.support.cli_runner import Result

ROOT = Path(__file__).parents[2]
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["elmore.lm.finetune", "elmore.cli.embed", "torch._dynamo"])


class KillAt(NamedTuple):
    """The step at which a process sends itself a signal."""

    step: int
    """As soon as this update is written down."""
    number: int = signal.SIGKILL
    while_saving: bool = False
    """Not then, but when the first file of its checkpoint is written."""
    rank: int = 0
    times: int = 1


class KillCall(NamedTuple):
    """The call of a function before which a process kills itself."""

    function: str
    """As `module:name` or `module:Class.name`."""
    number: int


def run(
    *arguments: str,
    kill: KillAt | KillCall | None = None,
    ranks: int = 1,
    environment: dict[str, str] | None = None,
    constants: dict[str, object] | None = None,
) -> list[Result]:
    """Return the output and exit code of `elmore ARGUMENTS` on each rank; -9 means killed.

    `constants` are set in the new processes first, each named as `module:NAME`.
    """
    changes = Changes(environment or {}, constants or {}, kill)
    with tempfile.TemporaryDirectory() as folder, _free_port() as port:
        jobs = [
            _started(Path(folder), arguments, changes, rank, ranks, port) for rank in range(ranks)
        ]
        end = time.monotonic() + 250
        try:
            for job in jobs:
                job.join(timeout=max(0, end - time.monotonic()))
        finally:
            for job in jobs:
                job.kill()  # who has not ended by then
                job.join()
        return [_result(Path(folder), rank, job) for rank, job in enumerate(jobs)]


def _started(
    folder: Path,
    arguments: tuple[str, ...],
    changes: "Changes",
    rank: int,
    ranks: int,
    port: int,
) -> BaseProcess:
    environment: dict[str, object] = {**changes.environment}
    if ranks > 1:
        environment |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks}
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    texts = {name: str(value) for name, value in environment.items()}
    kill = changes.kill
    mine = None if isinstance(kill, KillAt) and kill.rank != rank else kill
    changes = changes._replace(environment=texts, kill=mine)
    job = _context.Process(target=command, args=(arguments, str(folder / str(rank)), changes))
    job.start()
    return job


@contextlib.contextmanager
def _free_port() -> Iterator[int]:
    """Hold a free port, so that nobody else gets it before the first rank listens there."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the first rank does
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def _result(folder: Path, rank: int, job: BaseProcess) -> Result:
    assert job.exitcode is not None, "it did not end"
    out, err = ((folder / f"{rank}.{name}").read_text() for name in ("out", "err"))
    return Result(job.exitcode, out, err)


class Changes(NamedTuple):
    """What differs in a new process."""

    environment: dict[str, str]
    constants: dict[str, object]
    kill: KillAt | KillCall | None


def command(arguments: tuple[str, ...], files: str, changes: Changes) -> None:
    """Run the command inside the new process."""
    import torch

    from elmore import cli

    torch.set_num_threads(1)
    os.environ.update(changes.environment)
    sys.argv = ["elmore", *arguments]
    for name, value in changes.constants.items():
        setattr(*_find(name), value)
    if isinstance(changes.kill, KillCall):
        owner, name = _find(changes.kill.function)
        _at_call(owner, name, changes.kill.number, lambda: os.kill(os.getpid(), signal.SIGKILL))
    elif changes.kill is not None:
        _prepare(changes.kill)
    with (
        Path(f"{files}.out").open("w", buffering=1) as out,
        Path(f"{files}.err").open("w", buffering=1) as err,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        cli.main()


def _find(name: str) -> tuple[object, str]:
    """Find the module or class that has `module:name`, and the last part of the name."""
    module, _, path = name.partition(":")
    *classes, last = path.split(".")
    owner: object = importlib.import_module(module)
    for one in classes:
        owner = getattr(owner, one)
    return owner, last


def _prepare(kill: KillAt) -> None:
    from elmore.train import checkpoint, fit

    def end() -> None:
        for _ in range(kill.times):
            os.kill(os.getpid(), kill.number)

    if kill.while_saving:
        _around(checkpoint, "save_file", after=lambda _, path: _named(kill.step, path) and end())
    else:
        # every rank looks and asks, though one alone writes it down in between
        seen: list[int] = []
        _around(
            fit._Trainer, "_sync_metrics", after=lambda _, steps, __: seen.append(steps[-1].number)
        )
        _around(fit._Trainer, "_stop_reason", before=lambda *_: seen[-1] >= kill.step and end())


def _named(step: int, path: Path) -> bool:
    return f"step-{step:08}" in str(path)


def _around(
    owner: object,
    name: str,
    *,
    before: Callable[..., object] = lambda *_: None,
    after: Callable[..., object] = lambda *_: None,
) -> None:
    inner = getattr(owner, name)

    def changed(*arguments: object, **more: object) -> object:
        before(*arguments)
        result = inner(*arguments, **more)
        after(*arguments)
        return result

    setattr(owner, name, changed)


def stop_at(owner: object, name: str, number: int) -> None:
    """Stop this process (SIGSTOP) at the `number`-th call of a function.

    It waits there to be killed: polling from outside would come too late on a busy machine.
    """
    _at_call(owner, name, number, lambda: os.kill(os.getpid(), signal.SIGSTOP))


def _at_call(owner: object, name: str, number: int, act: Callable[[], object]) -> None:
    calls = itertools.count(1)
    _around(owner, name, before=lambda *_: next(calls) == number and act())


def is_running(pid: int) -> bool:
    """Return whether a process runs; one whose exit status nobody has read yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return state.rsplit(")", 1)[1].split()[0] != "Z"


def kill_when_stopped(command: Sequence[str | Path]) -> list[int]:
    """Run a command that stops itself, kill it there, and return the child processes it leaves."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, **quiet) as job:
        try:
            _, status = os.waitpid(job.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), f"it ended before it could be killed: {status}"
            children = Path(f"/proc/{job.pid}/task/{job.pid}/children")
            left = list(map(int, children.read_text().split())) if children.exists() else []
        finally:
            job.kill()
        assert job.wait() == -signal.SIGKILL
    return left
