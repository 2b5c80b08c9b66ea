"""A long embedding job: from lines of text to one file, resumable after anything.

Results are journalled in parts (`journal.py`). At the end the output file is assembled from them
under a temporary name and renamed when it is complete.
"""

import hashlib
import itertools
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from elmore import atomic, config
from elmore.embed import pooling
from elmore.embed.embedder import Embedder
from elmore.embed.jobs.journal import EmbedJob, EmbedJournal, PartWriter, text_digest
from elmore.embed.jobs.writers import writer_for
from elmore.embed.outputs import check_layers, parse_layers
from elmore.embed.tokenized import Text
from elmore.errors import ConfigError, DataError
from elmore.journal import refuse_full_disk, refuse_taken
from elmore.model.precision import Precision
from elmore.weights.bundle import Bundle

Progress = Callable[[int, int], None]
"""Called with the lines and the tokens done so far."""


def model_digest(bundle: Bundle) -> str:
    """Know a model again: its shape, how it spells, and every weight."""
    digest = hashlib.sha256(json.dumps(config.as_dict(bundle.config)).encode())
    digest.update(repr(bundle.alphabet).encode("utf-8", "backslashreplace"))
    for name, weight in sorted(bundle.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.cpu().contiguous().numpy())
    return digest.hexdigest()


def describe_job(
    embedder: Embedder,
    *,
    precision: Precision | None = None,
    **choices: Any,  # noqa: ANN401 -- the fields of EmbedJob
) -> EmbedJob:
    """Say what a job is, and refuse what it cannot be.

    Its precision is the one of the embedder, unless others will embed in its place.
    """
    bundle = embedder.bundle
    job = EmbedJob(
        model=model_digest(bundle),
        num_layers=embedder.num_layers,
        width=embedder.width,
        precision=precision or ("fast" if embedder.is_fast else "exact"),
        **choices,
    )
    check_layers(parse_layers(job.layers), job.num_layers)
    if job.pool and job.layers == "all":
        raise ConfigError("pooling gives one vector per line: layers 'all' has no place in it")
    return job


def run_job(
    embedder: Embedder,
    lines: Iterable[Text],
    out: Path,
    job: EmbedJob,
    *,
    resume: bool = False,
    overwrite: bool = False,
    sentence_index: bool = True,
    progress: Progress = lambda lines, tokens: None,
) -> None:
    """Embed lines into `out`, whose ending says the format; see `EmbedJob` for what decides it."""
    writer = writer_for(out)
    folder = out.with_name(f"{out.name}.parts")
    _refuse_taken(out, folder, resume=resume, overwrite=overwrite)
    out.parent.mkdir(parents=True, exist_ok=True)
    parts = EmbedJournal(folder, job, anew=overwrite and not resume)
    try:
        _fill(parts, embedder, iter(lines), progress)
        refuse_full_disk(out, 1.05 * parts.num_bytes())  # HDF5 cannot close a file on a full disk
        aside = folder / f"result{out.suffix}"
        with writer(aside, job, sentence_index=sentence_index) as file:
            for row in parts.rows():
                file.write(row)
        atomic.replace(aside, out)
        parts.remove()
    except BaseException:
        if parts.is_empty and folder.exists():
            parts.remove()  # nothing to resume, and the next try may be another job
        raise
    finally:
        parts.close()


def _refuse_taken(out: Path, folder: Path, *, resume: bool, overwrite: bool) -> None:
    if out.is_dir():
        raise DataError(f"{out} is a folder; pass the name of a file")
    if os.path.lexists(out) and not out.is_file():
        raise DataError(f"{out} exists and is no file; pass another name")
    EmbedJournal.refuse_foreign(folder)
    refuse_taken(out, folder, taken=out.exists(), resume=resume, overwrite=overwrite)


def _fill(
    parts: EmbedJournal, embedder: Embedder, lines: Iterator[Text], progress: Progress
) -> None:
    """Write the parts that are missing."""
    number = num_lines = num_tokens = 0
    for manifest in parts.finished():
        again = list(itertools.islice(lines, len(manifest["texts"])))
        if text_digest(again) != manifest["input"]:
            raise DataError(
                f"{parts.folder}: the input changed: lines {num_lines + 1} to "
                f"{num_lines + len(manifest['texts'])} are not what was embedded; start over with "
                "--overwrite"
            )
        number += 1
        num_lines += len(again)
        num_tokens += sum(map(len, manifest["tokens"]))
    progress(num_lines, num_tokens)  # once: what was done before is not this run's speed
    part: PartWriter | None = None
    try:
        for text, tokens, vectors in embed_lines(embedder, lines, parts.job):
            part = part or parts.begin(number, num_lines)
            part.add(text, tokens, vectors)
            num_lines += 1
            num_tokens += len(tokens)
            if part.is_full:
                part.close()
                part, number = None, number + 1
            progress(num_lines, num_tokens)
        if part:
            part.close()
    except BaseException:
        if part:
            part.abandon()
        raise


def embed_lines(
    embedder: Embedder, lines: Iterable[Text], job: EmbedJob
) -> Iterator[tuple[Text, list[str], Shaped[np.ndarray, "..."]]]:
    """Give each line with its tokens and its vectors, as the job wants them."""
    waiting: deque[Text] = deque()

    def passed_on() -> Iterator[Text]:
        for line in lines:
            waiting.append(line)
            yield line.split() if job.tokenized and isinstance(line, str) else line

    for sentence in embedder.stream(
        passed_on(), layers=parse_layers(job.layers), split_sentences=job.split
    ):
        vectors = sentence.vectors
        if job.pool is not None:
            vectors = pooling.pool(sentence.tokens, vectors, job.pool)
        yield waiting.popleft(), sentence.tokens, vectors.astype(job.dtype)
