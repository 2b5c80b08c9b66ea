"""The same job on a Ray cluster, by Ray Data: parquet in, parquet out.

The lines are split into shards in `OUT.parts`; actors that load the model once embed them in any
order; the results are written in order into one file, by the writer of the local job. `OUT` must
be in a folder that every node of the cluster shares, and elmore must be installed on each node.
"""

import contextlib
import copy
import itertools
import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elmore import atomic
from elmore.embed.embedder import Embedder
from elmore.embed.jobs import columns
from elmore.embed.jobs.job import Progress, as_row, embed_lines
from elmore.embed.jobs.journal import EmbedJob, EmbedJournal, Row
from elmore.embed.jobs.writers import ParquetWriter
from elmore.embed.tokenized import Text
from elmore.errors import ConfigError, DataError, ElmoreError
from elmore.text.files import TableRow
from elmore.weights import folder as model_folder
from elmore.weights import warm

SHARD_LINES = 2048
_SHARD_CHARACTERS = 1 << 20
_BLOCK_BYTES = 32 << 20  # of vectors per block of results
_MAX_TRIES = 8  # of a shard whose workers die


def run_on_ray(
    embedder: Embedder,
    lines: Iterable[Text | TableRow],
    out: Path,
    job: EmbedJob,
    *,
    workers: int | None = None,
    device: str = "auto",
    shard_lines: int = SHARD_LINES,
    overwrite: bool = False,
    progress: Progress = lambda lines, tokens: None,
) -> None:
    """Embed lines into the parquet file `out`, on the cluster at `RAY_ADDRESS` or on this machine.

    By default there is one worker per GPU, or without GPUs as many as the CPUs allow. If a worker
    dies, another one takes over its shard.
    """
    out = out.absolute()
    if out.suffix != ".parquet":
        raise ConfigError(
            f"{out}: the ray engine writes parquet; expected a name that ends in .parquet"
        )
    if workers is not None and workers < 1:
        raise ConfigError(f"workers must be at least 1, found {workers}")
    folder = out.with_name(f"{out.name}.parts")
    EmbedJournal.check_folder(folder)
    for path in (out, folder):
        if path.exists() and not overwrite:
            raise DataError(f"{path} exists already; pass another name, or --overwrite")
    with _connect() as ray:
        parts = EmbedJournal(folder, job, restart=True)
        try:
            num_lines = _write_shards(lines, folder / "shards", shard_lines)
            is_warm = job.initial_state == "warm"
            bundle = warm.add_warm_state(embedder.bundle) if is_warm else embedder.bundle
            model_folder.save(bundle, folder / "model")
            if num_lines:
                _embed(ray, folder, job, embedder, *_divide(ray, workers, device))
            _assemble(folder, out, job, num_lines, progress)
        finally:
            parts.remove()  # a failed job starts over, so nothing is kept


@contextlib.contextmanager
def _connect() -> Iterator[Any]:
    """Connect to Ray, without its log messages; disconnect afterwards if we connected."""
    try:
        import pyarrow  # noqa: F401 -- required by Ray Data
        import ray
        import ray.data
    except ImportError as error:
        raise DataError(f"the ray engine needs {error.name}: pip install 'elmore[ray]'") from error
    log = logging.getLogger("ray.data")
    level, ours = log.level, not ray.is_initialized()
    log.setLevel(logging.CRITICAL)  # failures are raised
    with contextlib.redirect_stdout(sys.stderr):  # Ray prints warnings to stdout, where results go
        try:
            if ours:
                _start(ray)
            yield ray
        finally:
            log.setLevel(level)
            if ours:
                ray.shutdown()


def _start(ray: Any) -> None:  # noqa: ANN401 -- a module
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError as error:
        where = os.environ.get("RAY_ADDRESS", "this machine")
        raise DataError(f"no Ray at {where}: {str(error).splitlines()[0]}") from error


def _write_shards(lines: Iterable[Text | TableRow], folder: Path, shard_lines: int) -> int:
    """Write lines as shards of `line`, `text` and `others`, and return the number of lines.

    Texts are written as JSON: a text may be a list of tokens, or contain lone surrogates, which
    parquet cannot store.
    """
    from pyarrow import array, parquet, table

    folder.mkdir()
    texts = iter(lines)
    first = 0
    for number in itertools.count():
        shard: list[str] = []
        others: list[str] = []
        num_tokens = 0
        for row in map(as_row, itertools.islice(texts, shard_lines)):
            shard.append(json.dumps(row.text if isinstance(row.text, str) else list(row.text)))
            others.append(json.dumps(columns.output_columns(row.others)))
            num_tokens += len(shard[-1])
            if num_tokens >= _SHARD_CHARACTERS:
                break
        if not shard:
            break
        numbers = array(range(first, first + len(shard)))
        parquet.write_table(
            table({"line": numbers, "text": shard, "others": others}),
            folder / f"{number:08}.parquet",
        )
        first += len(shard)
    return first


def _divide(ray: Any, workers: int | None, device: str) -> tuple[int, dict[str, float]]:  # noqa: ANN401
    """Return the number of workers, and the GPU or the CPUs for each."""
    have = ray.cluster_resources()
    gpus = 0 if device == "cpu" else int(have.get("GPU", 0))
    if gpus:
        return workers or gpus, {"num_gpus": 1}
    cpus = int(have.get("CPU", 1))
    largest = max(int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"])
    num_workers = max(1, min(torch.get_num_threads(), largest))
    workers = workers or max(1, cpus // num_workers)
    return workers, {"num_cpus": max(1, min(num_workers, cpus // workers))}


def _embed(
    ray: Any,  # noqa: ANN401 -- a module
    folder: Path,
    job: EmbedJob,
    embedder: Embedder,
    workers: int,
    each: dict[str, float],
) -> None:
    """Embed every shard into files in `results`, in any order."""
    shards = [{"path": str(path)} for path in sorted((folder / "shards").iterdir())]
    options = {
        "device": "cuda" if "num_gpus" in each else "cpu",
        "initial_state": job.initial_state,
        "precision": job.precision,
        "tokenizer": embedder.tokenizer,
        "token_budget": embedder.token_budget,
    }
    context = copy.deepcopy(ray.data.DataContext.get_current())
    context.enable_progress_bars = context.print_on_execution_start = False
    context.raise_original_map_exception = True  # else Ray hides our own exceptions
    try:
        with ray.data.DataContext.current(context):
            ray.data.from_items(shards, override_num_blocks=len(shards)).map_batches(
                Worker,  # Ray Data restarts it, and its shard, when it dies
                fn_constructor_args=(folder, job, torch.get_num_threads(), _MAX_TRIES, options),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(size=workers),
                **each,
            ).write_parquet(
                str(folder / "results"),
                ray_remote_args={"num_cpus": 0},  # the workers may hold all CPUs to the end
                concurrency=workers,
                compression="none",
                use_dictionary=False,
            )
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, ElmoreError):
            raise type(cause)(str(cause).splitlines()[0]) from error  # without Ray's advice
        if isinstance(error, ray.exceptions.RayTaskError):
            raise
        raise DataError(f"the Ray cluster failed: {str(error).splitlines()[0]}") from error


class Worker:
    """A Ray actor that loads the model once and embeds shards."""

    def __init__(
        self, folder: Path, job: EmbedJob, num_threads: int, max_tries: int, options: dict[str, Any]
    ) -> None:
        torch.set_num_threads(num_threads)  # the bits depend on it
        self._job = job
        self._tries, self._max_tries = folder / "tries", max_tries
        self._embedder = Embedder(model_folder.load(folder / "model"), **options)

    def __call__(self, batch: dict[str, Any]) -> Iterator[Any]:
        """Yield the lines of a shard with their tokens as JSON and their vectors as bytes."""
        from pyarrow import parquet

        path = Path(batch["path"].item())
        shard = parquet.read_table(path, partitioning=None)
        numbers = shard["line"].to_pylist()
        self._count_try(path.stem, numbers)
        texts = map(json.loads, shard["text"].to_pylist())
        rows: list[tuple[int, str, bytes]] = []
        num_bytes = 0
        results = embed_lines(self._embedder, texts, self._job)
        for line, (_, tokens, vectors) in zip(numbers, results, strict=True):
            rows.append((line, json.dumps(tokens), vectors.tobytes()))
            num_bytes += vectors.nbytes
            if num_bytes >= _BLOCK_BYTES:
                yield _table(rows)
                rows, num_bytes = [], 0
        if rows:
            yield _table(rows)

    def _count_try(self, shard: str, lines: list[int]) -> None:
        """Count the tries of a shard: Ray would restart one that kills its workers for ever."""
        self._tries.mkdir(exist_ok=True)
        with (self._tries / shard).open("ab") as file:
            file.write(b".")
            file.flush()
            if file.tell() > self._max_tries:
                raise DataError(
                    f"lines {lines[0] + 1} to {lines[-1] + 1}: {self._max_tries} workers died of "
                    "them; is there enough memory for the longest line?"
                )


def _table(rows: list[tuple[int, str, bytes]]) -> Any:  # noqa: ANN401 -- Arrow's own
    from pyarrow import array, int64, large_binary, large_string, table

    types = {"line": int64(), "tokens": large_string(), "vectors": large_binary()}
    columns = zip(types.items(), zip(*rows, strict=True), strict=True)
    return table({name: array(values, kind) for (name, kind), values in columns})


def _assemble(folder: Path, out: Path, job: EmbedJob, num_lines: int, progress: Progress) -> None:
    """Write the rows of all results in the order of their lines, a few at a time in memory."""
    from pyarrow import parquet

    groups = []
    for path in (folder / "results").glob("*.parquet"):
        metadata = parquet.read_metadata(path)
        for i in range(metadata.num_row_groups):
            groups.append((metadata.row_group(i).column(0).statistics.min, path, i))
    temporary = folder / "result.parquet"
    done = num_tokens = 0
    kinds = columns.infer_kinds(_read_others(folder / "shards"))
    others = _read_others(folder / "shards")
    with ParquetWriter(temporary, job, kinds, sentence_index=False) as writer:
        for _, path, i in sorted(groups):
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(64, row_groups=[i]):
                    for line, tokens, data in zip(*(c.to_pylist() for c in batch), strict=True):
                        if line != done:  # a shard that was restarted is there twice
                            continue
                        row = _row(line, json.loads(tokens), data, job)._replace(
                            others=next(others)
                        )
                        writer.write(row)
                        done += 1
                        num_tokens += len(row.tokens)
                        progress(done, num_tokens)
    if done != num_lines:
        raise DataError(
            f"{out}: line {done + 1} of {num_lines} is missing in the results of the cluster"
        )
    atomic.replace(temporary, out)


def _read_others(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the other columns of each line."""
    from pyarrow import parquet

    for path in sorted(folder.iterdir()):
        yield from map(json.loads, parquet.read_table(path, columns=["others"])[0].to_pylist())


def _row(line: int, tokens: list[str], data: bytes, job: EmbedJob) -> Row:
    shape = (job.width,) if job.pool else (len(tokens), job.width)
    if job.layers == "all" and not job.pool:
        shape = (job.num_layers, *shape)
    return Row(line, tokens, tokens, np.frombuffer(data, job.dtype).reshape(shape))
