"""A long embedding job: from lines of text to one file, resumable after an interruption.

Results are journalled in parts (`journal.py`). At the end the output file is assembled from them
under a temporary name and renamed when it is complete.
"""

import hashlib
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from elmore import atomic
from elmore.embed import pooling
from elmore.embed.embedder import Embedder
from elmore.embed.jobs import columns
from elmore.embed.jobs.journal import ADVICE, EmbedJob, EmbedJournal, PartWriter, text_digest
from elmore.embed.jobs.writers import writer_for
from elmore.embed.outputs import Direction, parse_direction, parse_layers, resolve_layers
from elmore.embed.tokenized import Text
from elmore.errors import ConfigError, DataError
from elmore.journal import check_disk_space, check_output_free
from elmore.model.config import Precision
from elmore.text.files import TableRow
from elmore.weights.digest import model_digest
from elmore.weights.pooling import TextPooling
from elmore.weights.whitening import Whitening

Progress = Callable[[int, int], None]
"""Called with the number of lines and of tokens that are done."""


def describe_job(
    embedder: Embedder,
    *,
    layers: str | None = None,
    pool: str | None = None,
    direction: Direction = "both",
    precision: Precision | None = None,
    **choices: Any,  # noqa: ANN401 -- the other fields of EmbedJob
) -> EmbedJob:
    """Return the description of a job, or raise ConfigError if it is impossible.

    Its layers are those of the pooling, or the average. Its precision is that of the embedder,
    unless other processes will embed.
    """
    model = model_digest(embedder.bundle)
    width = embedder.width if direction == "both" else embedder.width // 2
    chosen = None if layers is None else parse_layers(layers)
    if pool is not None:
        how, chosen = pooling.find_pooling(embedder.poolings, pool, chosen)
        layers, width = str(chosen), pooling.pooled_width(how, width)
        if isinstance(how, TextPooling):
            if direction != "both":
                raise ConfigError(
                    f"the pooling {pool!r} is of both directions, found {direction!r}; pool by "
                    "mean or max"
                )
            model = hashlib.sha256(f"{model} {how.digest}".encode()).hexdigest()
    whole = "average" if chosen is None else chosen
    resolved = resolve_layers(whole, embedder.num_layers, embedder.whitening)
    parse_direction(direction, resolved)
    if isinstance(resolved, Whitening):
        model = hashlib.sha256(f"{model} {resolved.digest}".encode()).hexdigest()
    return EmbedJob(
        model=model,
        layers=layers or "average",
        pool=pool,
        num_layers=embedder.num_layers,
        width=width,
        direction=direction,
        precision=precision or ("fast" if embedder.is_fast else "exact"),
        **choices,
    )


def run_job(
    embedder: Embedder,
    lines: Iterable[Text | TableRow],
    out: Path,
    job: EmbedJob,
    *,
    resume: bool = False,
    overwrite: bool = False,
    sentence_index: bool = True,
    progress: Progress = lambda lines, tokens: None,
) -> None:
    """Embed lines into the file `out`, whose suffix is the format.

    The other columns of a table's rows are written beside the vectors, but for `.npz`.
    """
    writer = writer_for(out)
    folder = out.with_name(f"{out.name}.parts")
    _refuse_taken(out, folder, resume=resume, overwrite=overwrite)
    out.parent.mkdir(parents=True, exist_ok=True)
    journal = EmbedJournal(folder, job, restart=overwrite and not resume)
    try:
        _fill(journal, embedder, map(as_row, lines), progress)
        check_disk_space(out, 1.05 * journal.num_bytes())
        temporary = folder / f"result{out.suffix}"
        kinds = columns.infer_kinds(journal.others())
        with (
            atomic.explain_write_errors(out, ADVICE),
            writer(temporary, job, kinds, sentence_index=sentence_index) as file,
        ):
            for row in journal.rows():
                file.write(row)
        atomic.replace(temporary, out)
        journal.remove()
    except BaseException:
        if journal.is_empty and folder.exists():
            journal.remove()  # nothing to resume, and the next run may be another job
        raise
    finally:
        journal.close()


def as_row(line: Text | TableRow) -> TableRow:
    """Return a text as a row without other columns."""
    return (
        line
        if isinstance(line, TableRow)
        else TableRow(line if isinstance(line, str) else list(line), {})
    )


def _refuse_taken(out: Path, folder: Path, *, resume: bool, overwrite: bool) -> None:
    if out.is_dir():
        raise DataError(f"{out} is a folder; pass the name of a file")
    if os.path.lexists(out) and not out.is_file():
        raise DataError(f"{out} exists and is not a file; pass another name")
    EmbedJournal.check_folder(folder)
    check_output_free(out, folder, exists=out.exists(), resume=resume, overwrite=overwrite)


def _fill(
    journal: EmbedJournal, embedder: Embedder, rows: Iterator[TableRow], progress: Progress
) -> None:
    """Embed the lines after the finished parts."""
    number = num_lines = num_tokens = 0
    for manifest in journal.finished():
        same = list(itertools.islice(rows, len(manifest["texts"])))
        texts = [row.text for row in same]
        others = [columns.output_columns(row.others) for row in same]
        if text_digest(texts) != manifest["input"] or (
            others != (manifest.get("others") or [{}] * len(texts))
        ):
            raise DataError(
                f"{journal.folder}: the input changed: lines {num_lines + 1} to "
                f"{num_lines + len(manifest['texts'])} are not what was embedded; start over with "
                "--overwrite"
            )
        number += 1
        num_lines += len(texts)
        num_tokens += sum(map(len, manifest["tokens"]))
    progress(num_lines, num_tokens)  # once: earlier runs do not count as the speed of this one
    part: PartWriter | None = None
    try:
        for row, tokens, vectors in embed_rows(embedder, rows, journal.job):
            part = part or journal.begin(number, num_lines)
            part.add(row.text, tokens, vectors, columns.output_columns(row.others))
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
    """Yield each line with its tokens and the vectors that the job asks for."""
    for row, tokens, vectors in embed_rows(embedder, map(as_row, lines), job):
        yield row.text, tokens, vectors


def embed_rows(
    embedder: Embedder, rows: Iterable[TableRow], job: EmbedJob
) -> Iterator[tuple[TableRow, list[str], Shaped[np.ndarray, "..."]]]:
    """Yield each row with its tokens and the vectors that the job asks for."""
    waiting: deque[TableRow] = deque()
    layers, how = parse_layers(job.layers), None
    if job.pool is not None:
        how, layers = pooling.find_pooling(embedder.poolings, job.pool, layers)

    def read() -> Iterator[Text]:
        for row in rows:
            waiting.append(row)
            text = row.text
            yield text.split() if job.tokenized and isinstance(text, str) else text

    for sentence in embedder.stream(
        read(), layers=layers, direction=job.direction, split_sentences=job.split
    ):
        vectors = sentence.vectors
        if how is not None:
            vectors = pooling.pool(sentence.tokens, vectors, how)
        yield waiting.popleft(), sentence.tokens, vectors.astype(job.dtype)
