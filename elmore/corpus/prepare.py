"""Prepare text files as a corpus: in parallel, resumable, and with reproducible bytes.

First worker processes turn each block of the text (`blocks.py`) into a part in a journal beside the
output (`journal.py`); then the parts are merged into the corpus (`merge.py`), which is renamed to
the output when it is complete.
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
from elmore.corpus import blocks, index, merge, shards, workers
from elmore.corpus.blocks import Block
from elmore.corpus.journal import PrepareJob, PrepareJournal, write_part
from elmore.corpus.options import PrepareOptions
from elmore.errors import ConfigError, DataError
from elmore.journal import check_disk_space, check_output_free
from elmore.text.vocabulary import Vocabulary

Progress = Callable[[float | None, int, int], None]
"""Called with the fraction done (None if unknown), and the lines and tokens so far."""

_COUNTING_FRACTION = 0.9  # of the time; the rest is merging
_BYTES_PER_TOKEN = 5  # on disk


def prepare(
    names: Sequence[str],
    out: Path,
    options: PrepareOptions,
    *,
    valid: Sequence[str] = (),
    vocabulary: Path | None = None,
    num_workers: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = lambda fraction, lines, tokens: None,
) -> shards.Corpus:
    """Prepare text files as a corpus in the folder `out`.

    Memory holds some blocks of the text, and each distinct word once.

    Args:
        names: Files, patterns, or `-` for stdin.
        out: The corpus folder to write.
        options: How to read the text and limit its vocabulary.
        valid: Files of validation text.
        vocabulary: A vocabulary file, or a folder with one, to use instead of a new one.
        num_workers: Number of processes; by default one per core.
        resume: Continue an interrupted job.
        overwrite: Replace an existing corpus or unfinished job.
        progress: Called with the fraction done, and the lines and tokens so far.

    Raises:
        DataError: The input cannot be read, changed since the start, or `out` is taken.
    """
    if valid and options.valid_fraction:
        raise ConfigError("pass either --valid or --valid-fraction, not both")
    if not out.name:
        raise ConfigError(f"{out} is not a valid name for a new folder; choose another one")
    text = blocks.TextSource(names, valid, options)
    words, sha256 = _read_vocabulary(vocabulary)
    job = PrepareJob(
        **asdict(options),
        inputs=blocks.describe_inputs(text.train),
        valid_inputs=blocks.describe_inputs(text.valid),
        vocabulary=sha256,
        elmore=__version__,
    )
    folder = out.with_name(f"{out.name}.parts")
    _check_output(out, folder, resume=resume, overwrite=overwrite)
    journal = PrepareJournal(folder, job, restart=overwrite and not resume)
    try:
        with _explain_full_disk(out):
            num_processes = _num_processes(num_workers, text.size)
            manifests = _write_parts(journal, text, num_processes, progress)
            _check_splits(journal, manifests)
            num_tokens = sum(manifest["train"] + manifest["valid"] for manifest in manifests)
            check_disk_space(out, _BYTES_PER_TOKEN * num_tokens)
            _write_corpus(journal, manifests, out, words, progress)
        journal.remove()
    except BaseException:
        if journal.is_empty and folder.exists():
            journal.remove()  # nothing to resume, and the next job may have other options
        raise
    finally:
        journal.close()
    return shards.open_corpus(out)


def _read_vocabulary(path: Path | None) -> tuple[Vocabulary | None, str | None]:
    """Read a given vocabulary, and compute its checksum."""
    if path is None:
        return None, None
    if path.is_dir():
        path /= shards.VOCABULARY
    vocabulary = Vocabulary.read(path)
    return vocabulary, hashlib.sha256("\n".join(vocabulary.words).encode()).hexdigest()


def _check_output(out: Path, folder: Path, *, resume: bool, overwrite: bool) -> None:
    if os.path.lexists(out) and (out.is_symlink() or not out.is_dir()):
        raise DataError(f"{out} exists and is not a folder; pass another name")
    names = sorted(path.name for path in out.iterdir()) if out.exists() else []
    PrepareJournal.check_folder(folder)
    check_output_free(out, folder, exists=bool(names), resume=resume, overwrite=overwrite)
    for name in names:
        if not index.CORPUS_FILES.fullmatch(name):
            raise DataError(
                f"{out} contains {name!r}, which elmore did not write; pass another name"
            )
    if names and not config.has_format(out / shards.INDEX):
        raise DataError(
            f"{out} contains {names[0]!r} and is not a corpus of elmore, so it is not replaced; "
            "pass another name"
        )


@contextmanager
def _explain_full_disk(out: Path) -> Iterator[None]:
    """Add advice to the error of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise DataError(
                f"{out}: {error.strerror}; free some space and continue with --resume"
            ) from error
        raise


def _num_processes(num_workers: int | None, size: int | None) -> int:
    """Return how many processes have work; a compressed byte is about four bytes of text."""
    if num_workers is not None and num_workers < 1:
        raise ConfigError(f"--workers must be at least 1, found {num_workers}")
    most = num_workers or num_cores()
    return most if size is None else min(most, 1 + 4 * size // blocks.MAX_CHARACTERS)


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _write_parts(
    journal: PrepareJournal, text: blocks.TextSource, num_processes: int, progress: Progress
) -> list[dict[str, Any]]:
    """Write the parts that are missing, and return the manifests of all."""
    manifests: dict[int, dict[str, Any]] = {}
    lines = tokens = 0

    def add(number: int, manifest: dict[str, Any]) -> None:
        nonlocal lines, tokens
        manifests[number] = manifest
        lines += manifest["lines"]
        tokens += manifest["train"] + manifest["valid"]

    def missing_blocks() -> Iterator[Block]:
        for block in blocks.split_blocks(text, journal.job.valid_fraction):
            manifest = journal.manifest(block.number)
            if manifest is None:
                yield block
                continue
            if manifest["digest"] != block.digest():
                raise DataError(
                    f"{journal.folder}: the input has changed from {block.where} on since the job "
                    "was started; start again with --overwrite"
                )
            add(block.number, manifest)

    work = functools.partial(write_part, journal.folder, journal.job)
    for number, manifest in workers.map_unordered(work, missing_blocks(), num_processes):
        add(number, manifest)
        fraction = text.fraction
        progress(None if fraction is None else _COUNTING_FRACTION * fraction, lines, tokens)
    return [manifests[number] for number in range(len(manifests))]


def _check_splits(journal: PrepareJournal, manifests: Sequence[dict[str, Any]]) -> None:
    """Raise DataError for an empty split; remove the journal, since resuming cannot help."""
    job = journal.job
    empty = [split for split in ("train", "valid") if not any(each[split] for each in manifests)]
    if job.valid_fraction and empty and manifests:
        chosen = "all" if empty == ["train"] else "none"
        reason = (
            f"--valid-fraction {job.valid_fraction} selected {chosen} of the documents; a blank "
            "line ends a document: are there enough? otherwise pass --valid FILE"
        )
    elif "train" in empty:
        reason = "contains no word; expected text to prepare"
    elif job.valid_inputs and "valid" in empty:
        reason = "contains no word; expected validation text"
    else:
        return
    journal.remove()
    named = job.valid_inputs if empty == ["valid"] and job.valid_inputs else job.inputs
    raise DataError(f"{', '.join(str(name) for name, _ in named[:5])}: {reason}")


def _write_corpus(
    journal: PrepareJournal,
    manifests: Sequence[dict[str, Any]],
    out: Path,
    vocabulary: Vocabulary | None,
    progress: Progress,
) -> None:
    """Merge the parts inside the journal, so that a kill leaves no other files, then rename."""
    built = journal.folder / "corpus"
    shutil.rmtree(built, ignore_errors=True)
    built.mkdir()
    lines = sum(manifest["lines"] for manifest in manifests)
    tokens = sum(manifest["train"] + manifest["valid"] for manifest in manifests)

    def report(fraction: float) -> None:
        progress(_COUNTING_FRACTION + (1 - _COUNTING_FRACTION) * fraction, lines, tokens)

    merge.merge_parts(journal, manifests, built, vocabulary, report)
    for path in built.iterdir():
        atomic.sync(path)
    names = {path.name for path in out.iterdir()} if out.exists() else set()
    replaces = {name for name in names if index.CORPUS_FILES.fullmatch(name)}
    with atomic.folder(out, replaces=replaces) as new:
        for path in list(built.iterdir()):
            path.rename(new / path.name)
