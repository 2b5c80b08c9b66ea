"""A damaged file is refused with one of our errors, or read; nothing else is raised or hangs.

`ELMORE_FUZZ=1000 python -m pytest tests/fuzz` tries that many damages of each reader's files.
"""

import os
import shutil
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from elmore.errors import ElmoreError
from tests.fuzz import examples, models, probes, texts, trained
from tests.fuzz.mutations import mutation_for
from tests.fuzz.reader import Reader
from tests.support.sweeps import pick

resource = pytest.importorskip("resource", reason="Windows has no limits on memory to set")
SEEDS = int(os.environ.get("ELMORE_FUZZ", pick(8, 100)))
SECONDS = 5
"""Of this process, for a file that is read in a tenth of one."""
ROOM = 4 << 30
"""Bytes that reading may take; a file of some kilobytes needs none of it."""
STATM = Path("/proc/self/statm")
if not STATM.exists():
    pytest.skip(
        "the memory in use is read from /proc, which only Linux has", allow_module_level=True
    )
READERS = (*models.READERS, *texts.READERS, *trained.READERS, *examples.READERS, *probes.READERS)


class HungError(BaseException):
    """What no reader can swallow."""


@contextmanager
def bounded() -> Iterator[None]:
    """Bound the time and the memory of what is done meanwhile."""

    def stop(*_: object) -> None:
        raise HungError

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(STATM.read_text().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, hard))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.fixture(scope="module", params=READERS, ids=lambda reader: reader.name.replace(" ", "-"))
def reader(request) -> Reader:
    return request.param


@pytest.fixture(scope="module")
def valid(reader, tmp_path_factory) -> Path:
    """The valid files of a reader."""
    path = tmp_path_factory.mktemp("valid")
    reader.make(path)
    return path


def files_of(folder: Path) -> list[Path]:
    return [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]


def damage(reader: Reader, valid: Path, folder: Path, seed: int) -> str:
    """Copy the valid files, one of them damaged; say which."""
    rng = Random(f"{reader.name} {seed}")
    shutil.copytree(valid, folder)
    name = rng.choice([path for path in files_of(valid) if path.name not in ("README.md", "lock")])
    path = folder / name
    path.write_bytes(mutation_for(path.name)(path.read_bytes(), rng))
    if rng.random() < 0.6:
        reader.repair(folder)
    return str(name)


def test_the_valid_files_are_read(reader, valid, tmp_path):
    shutil.copytree(valid, tmp_path / "files")
    reader.read(tmp_path / "files")


def test_damaged_files_are_refused_in_a_sentence_or_read(reader, valid, tmp_path):
    failed = []
    for seed in range(max(1, round(SEEDS * reader.share))):
        path = tmp_path / str(seed)
        name = damage(reader, valid, path, seed)
        try:
            with bounded(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                reader.read(path)
        except ElmoreError as error:
            if not str(error) or len(str(error)) > 1500:
                failed.append(f"seed {seed}, {name}: {len(str(error))} letters: {str(error)[:200]}")
        except FileNotFoundError:
            pass  # the command line says which
        except (Exception, HungError) as error:
            failed.append(
                f"seed {seed}, {name}: {type(error).__name__}: {str(error)[:300]} {_where(error)}"
            )
        shutil.rmtree(path)
    assert not failed, "\n".join([f"{reader.name}:", *failed])


def _where(error: BaseException) -> str:
    trace, result = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if "/elmore/" in code.co_filename:
            result = f"in {Path(code.co_filename).name}:{trace.tb_lineno} {code.co_name}"
        trace = trace.tb_next
    return result
