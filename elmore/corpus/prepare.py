"""Text files to a corpus: in parallel, restartable, and always the same bytes.

First each block of the text (`blocks.py`) becomes a part in a journal beside the output
(`parts.py`), by as many processes as there are cores; then the parts become the corpus
(`merge.py`), which takes its name when it is complete.
"""

import errno
import functools
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from elmore import __version__, atomic, config
from elmore.corpus import blocks, index, merge, parts, shards, workers
from elmore.corpus.blocks import Block
from elmore.corpus.options import Options
from elmore.corpus.parts import Job, Parts
from elmore.errors import ConfigError, DataError
from elmore.journal import refuse_full_disk, refuse_taken
from elmore.text.vocabulary import Vocabulary

Progress = Callable[[float | None, int, int], None]
"""Called with how much is done, 0 to 1 (None where nobody knows), the lines and tokens so far."""

_COUNTING = 0.9  # of the time; the rest is merging
_BYTES_PER_TOKEN = 5  # of a corpus on disk


def prepare(
    names: Sequence[str],
    out: Path,
    options: Options,
    *,
    valid: Sequence[str] = (),
    vocabulary: Path | None = None,
    num_workers: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = lambda fraction, lines, tokens: None,
) -> shards.Corpus:
    """Prepare text files as a corpus in the folder `out`.

    `valid` names files of validation text; `vocabulary` is a list of words to keep as it is, or a
    folder with one. A run that was stopped goes on with `resume`: what is finished stays.
    Memory holds some blocks of the text, and each distinct word of it once.
    """
    if valid and options.valid_share:
        raise ConfigError("validation text comes from --valid or from --valid-share, not from both")
    if not out.name:
        raise ConfigError(f"{out} is no name for a new folder; pass another one")
    text = blocks.Text(names, valid, options)
    words, digest = _given(vocabulary)
    job = Job(
        **asdict(options),
        inputs=blocks.describe(text.train),
        valid_inputs=blocks.describe(text.valid),
        vocabulary=digest,
        elmore=__version__,
    )
    folder = out.with_name(f"{out.name}.parts")
    _refuse_taken(out, folder, resume=resume, overwrite=overwrite)
    journal = Parts(folder, job, anew=overwrite and not resume)
    try:
        with _explained(out):
            notes = _count(journal, text, _crew_size(num_workers, text.size), progress)
            _refuse_empty(journal, notes)
            num_tokens = sum(note["train"] + note["valid"] for note in notes)
            refuse_full_disk(out, _BYTES_PER_TOKEN * num_tokens)
            _write(journal, notes, out, words, progress)
        journal.remove()
    except BaseException:
        if journal.is_empty and folder.exists():
            journal.remove()  # nothing to resume, and the next try may be another job
        raise
    finally:
        journal.close()
    return shards.open_corpus(out)


def _given(path: Path | None) -> tuple[Vocabulary | None, str | None]:
    """Read a list of words to keep, and its checksum."""
    if path is None:
        return None, None
    if path.is_dir():
        path /= shards.VOCABULARY
    vocabulary = Vocabulary.read(path)
    return vocabulary, hashlib.sha256("\n".join(vocabulary.words).encode()).hexdigest()


def _refuse_taken(out: Path, folder: Path, *, resume: bool, overwrite: bool) -> None:
    if os.path.lexists(out) and (out.is_symlink() or not out.is_dir()):
        raise DataError(f"{out} exists and is no folder; pass another name")
    found = sorted(path.name for path in out.iterdir()) if out.exists() else []
    Parts.refuse_foreign(folder)
    refuse_taken(out, folder, taken=bool(found), resume=resume, overwrite=overwrite)
    for name in found:
        if not index.OURS.fullmatch(name):
            raise DataError(
                f"{out} holds {name!r}, which is not ours to replace; pass another name"
            )
    if found and not config.says_format(out / shards.INDEX):
        raise DataError(
            f"{out} holds {found[0]!r} and is no corpus of elmore, so it is not ours to replace; "
            "pass another name"
        )


@contextmanager
def _explained(out: Path) -> Iterator[None]:
    """Say of a full disk what to do about it."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise DataError(
                f"{out}: {error.strerror}; make room and go on with --resume"
            ) from error
        raise


def _crew_size(asked: int | None, size: int | None) -> int:
    """Say how many processes have something to do; a packed byte is some four of text."""
    if asked is not None and asked < 1:
        raise ConfigError(f"--workers must be at least 1, found {asked}")
    most = asked or num_cores()
    return most if size is None else min(most, 1 + 4 * size // blocks.MAX_CHARACTERS)


def num_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _count(
    journal: Parts, text: blocks.Text, num_workers: int, progress: Progress
) -> list[dict[str, Any]]:
    """Make the parts that are missing, and give the notes of all."""
    notes: dict[int, dict[str, Any]] = {}
    lines = tokens = 0

    def finished(number: int, note: dict[str, Any]) -> None:
        nonlocal lines, tokens
        notes[number] = note
        lines += note["lines"]
        tokens += note["train"] + note["valid"]

    def missing() -> Iterator[Block]:
        for block in blocks.cut(text, journal.job.valid_share):
            note = journal.note(block.number)
            if note is None:
                yield block
                continue
            if note["digest"] != block.digest():
                raise DataError(
                    f"{journal.folder}: the input changed: what starts at {block.where} is not "
                    "what was prepared before; start over with --overwrite"
                )
            finished(block.number, note)

    work = functools.partial(parts.make, journal.folder, journal.job)
    for number, note in workers.share_out(work, missing(), num_workers):
        finished(number, note)
        fraction = text.fraction
        progress(None if fraction is None else _COUNTING * fraction, lines, tokens)
    return [notes[number] for number in range(len(notes))]


def _refuse_empty(journal: Parts, notes: Sequence[dict[str, Any]]) -> None:
    """Refuse a split without a word; to go on could not help, so the journal goes too."""
    job = journal.job
    empty = [split for split in ("train", "valid") if not any(note[split] for note in notes)]
    if job.valid_share and empty and notes:
        found = "all" if empty == ["train"] else "none"
        reason = (
            f"--valid-share {job.valid_share} drew {found} of the documents; a blank line ends a "
            "document: are there enough? else pass --valid FILE"
        )
    elif "train" in empty:
        reason = "no word in it; expected text to prepare"
    elif job.valid_inputs and "valid" in empty:
        reason = "no word in it; expected validation text"
    else:
        return
    journal.remove()
    named = job.valid_inputs if empty == ["valid"] and job.valid_inputs else job.inputs
    raise DataError(f"{', '.join(str(name) for name, _ in named[:5])}: {reason}")


def _write(
    journal: Parts,
    notes: Sequence[dict[str, Any]],
    out: Path,
    vocabulary: Vocabulary | None,
    progress: Progress,
) -> None:
    """Merge the parts inside the journal, where a kill leaves nothing astray, then move it out."""
    built = journal.folder / "corpus"
    shutil.rmtree(built, ignore_errors=True)
    built.mkdir()
    lines = sum(note["lines"] for note in notes)
    tokens = sum(note["train"] + note["valid"] for note in notes)

    def merged(fraction: float) -> None:
        progress(_COUNTING + (1 - _COUNTING) * fraction, lines, tokens)

    merge.merge(journal, notes, built, vocabulary, merged)
    for path in built.iterdir():
        atomic.sync(path)
    replaced = {path.name for path in out.iterdir()} if out.exists() else set()
    with atomic.folder(
        out, replaces={name for name in replaced if index.OURS.fullmatch(name)}
    ) as new:
        for path in list(built.iterdir()):
            path.rename(new / path.name)
