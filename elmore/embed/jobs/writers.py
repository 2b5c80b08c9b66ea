"""Writers of vector files: one class per format, row by row, in bounded memory.

HDF5 and npz have the layout of `allennlp elmo` and bilm-tf. In HDF5 the tokens and the other
columns of a table are attributes of a line's dataset, where readers of that layout ignore them.
`sentence_to_index` maps a sentence to its line; of equal sentences the last one counts. Our format
number is where other readers ignore it: in an attribute of the HDF5 file, in the comment of the
zip, in the metadata of the parquet file. JSON Lines has no such place.
"""

import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType, TracebackType
from typing import IO, Any, Protocol, Self

import numpy as np

from elmore.embed.jobs import arrow
from elmore.embed.jobs.columns import Kind, convert, escape
from elmore.embed.jobs.journal import EmbedJob, Row
from elmore.errors import ConfigError, DataError

FORMAT = 1
INDEX = "sentence_to_index"
_ROW_GROUP = 1024  # rows, or fewer when they are long
_ROW_GROUP_BYTES = 32 << 20


class Writer(Protocol):
    """Writes rows in order; the file is complete when the `with` block ends without an error."""

    def __init__(
        self, path: Path, job: EmbedJob, others: dict[str, Kind], *, sentence_index: bool
    ) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None: ...
    def write(self, row: Row) -> None:
        """Append one line's result."""
        ...


def writer_for(path: Path) -> type[Writer]:
    """Return the writer for the suffix of a path, or raise an error if it cannot be used here."""
    writers: dict[str, type[Writer]] = {
        ".hdf5": HDF5Writer,
        ".h5": HDF5Writer,
        ".npz": NPZWriter,
        ".parquet": ParquetWriter,
        ".jsonl": JSONLinesWriter,
    }
    if path.suffix not in writers:
        endings = ", ".join(writers)
        raise ConfigError(f"{path}: the suffix must be one of {endings}")
    if writers[path.suffix] is HDF5Writer:
        _hdf5(path)
    if path.suffix == ".parquet":
        _parquet(path)
    return writers[path.suffix]


def _parquet(path: Path) -> ModuleType:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise DataError(f"{path}: parquet needs pyarrow: pip install 'elmore[embed]'") from error
    return parquet


def _hdf5(path: Path) -> ModuleType:
    try:
        import h5py
    except ImportError as error:
        raise DataError(f"{path}: HDF5 needs h5py: pip install 'elmore[embed]'") from error
    return h5py


class _SentenceIndex:
    """The JSON object `sentence_to_index`, built on disk: it may be as large as the text."""

    def __init__(self, folder: Path, *, wanted: bool) -> None:
        self._file: IO[bytes] | None = None
        if wanted:
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115

    def add(self, row: Row) -> None:
        if self._file is not None:
            text = row.text if isinstance(row.text, str) else " ".join(row.text)
            comma = b", " if self._file.tell() else b"{"
            self._file.write(comma + f"{json.dumps(text)}: {json.dumps(str(row.line))}".encode())

    def take(self) -> str | None:
        if self._file is None:
            return None
        empty = self._file.tell() == 0
        self._file.write(b"{}" if empty else b"}")
        self._file.seek(0)
        text = self._file.read().decode()
        self._file.close()
        return text

    def copy_to(self, archive: zipfile.ZipFile) -> None:
        """Copy it into an archive as an array of one byte string, in chunks."""
        if self._file is None:
            return
        self._file.write(b"}" if self._file.tell() else b"{}")
        size = self._file.tell()
        self._file.seek(0)
        header = {"descr": f"|S{size}", "fortran_order": False, "shape": (1,)}
        with archive.open(_member(INDEX), "w", force_zip64=True) as member:
            np.lib.format.write_array_header_2_0(member, header)
            shutil.copyfileobj(self._file, member)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _member(name: str) -> zipfile.ZipInfo:
    """Return a member with a fixed date, so that the same job gives the same bytes."""
    return zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))


class _DiskFile(io.FileIO):
    """A file that keeps its first write error: HDF5 may crash if a write fails.

    After an error, what is written is lost, and the owner has to raise `error`.
    """

    error: OSError | None = None

    def write(self, data: Any) -> int:  # noqa: ANN401 -- any buffer
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while rest:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.error = self.error or error
        return size


class HDF5Writer:
    """HDF5: a dataset per line, named by its number."""

    def __init__(
        self, path: Path, job: EmbedJob, others: dict[str, Kind], *, sentence_index: bool
    ) -> None:
        self._text = _hdf5(path).string_dtype()
        self._disk = _DiskFile(path, "w+")
        self._file = _hdf5(path).File(self._disk, "w", libver=("v108", "latest"))
        self._file.attrs["elmore_format"] = FORMAT
        self._others = others
        self._index = _SentenceIndex(path.parent, wanted=sentence_index)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, at: Any) -> None:  # noqa: ANN401
        with self._disk, closing(self._index), self._raise_disk_error(), self._file:
            text = self._index.take() if kind is None else None
            if text is not None:
                dataset = self._file.create_dataset(INDEX, (1,), dtype=self._text)
                dataset[0] = text

    def write(self, row: Row) -> None:
        """Write one dataset."""
        with self._raise_disk_error():
            attributes = self._file.create_dataset(str(row.line), data=row.vectors).attrs
            attributes.create("tokens", list(map(escape, row.tokens)), dtype=self._text)
            for name, kind in self._others.items():
                value = convert(row.others.get(name), kind)
                if value is not None:
                    attributes[name] = escape(value) if isinstance(value, str) else value
        self._index.add(row)

    @contextmanager
    def _raise_disk_error(self) -> Iterator[None]:
        try:
            yield
        finally:
            if self._disk.error is not None:
                raise self._disk.error


class NPZWriter:
    """npz: the same names in a zip of numpy arrays."""

    def __init__(
        self, path: Path, job: EmbedJob, others: dict[str, Kind], *, sentence_index: bool
    ) -> None:
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True)
        self._zip.comment = f"elmore_format {FORMAT}".encode()
        self._index = _SentenceIndex(path.parent, wanted=sentence_index)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, at: Any) -> None:  # noqa: ANN401
        with self._zip, closing(self._index):
            if kind is None:
                self._index.copy_to(self._zip)

    def write(self, row: Row) -> None:
        """Write one array."""
        self._add(str(row.line), row.vectors)
        self._index.add(row)

    def _add(self, name: str, array: np.ndarray) -> None:
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, array, allow_pickle=False)
        self._zip.writestr(_member(name), buffer.getbuffer())


class ParquetWriter:
    """parquet: a row per line; see `arrow.py` for the columns."""

    def __init__(
        self, path: Path, job: EmbedJob, others: dict[str, Kind], *, sentence_index: bool
    ) -> None:
        self._layout = arrow.Layout(
            width=job.width,
            num_layers=job.num_layers if job.layers == "all" and not job.pool else None,
            pooled=job.pool is not None,
            dtype=job.dtype,
            others=others,
        )
        metadata = {"elmore_format": str(FORMAT)}
        self._disk = path.open("wb")  # pyarrow opens no path that is not UTF-8
        self._file = _parquet(path).ParquetWriter(
            self._disk, arrow.schema(self._layout).with_metadata(metadata)
        )
        self._rows: list[Row] = []
        self._held = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, at: Any) -> None:  # noqa: ANN401
        with self._disk, self._file:
            if kind is None:
                self._flush()

    def write(self, row: Row) -> None:
        """Buffer a row until its row group is full."""
        self._rows.append(row)
        cells = (value for value in row.others.values() if isinstance(value, str))
        self._held += row.vectors.nbytes + sum(len(token) + 64 for token in row.tokens)
        self._held += sum(map(len, cells))
        if len(self._rows) >= _ROW_GROUP or self._held >= _ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._file.write_batch(arrow.batch(self._rows, self._layout))
        self._rows, self._held = [], 0


class JSONLinesWriter:
    """JSON Lines: `line`, `tokens`, other columns of the input, `vectors`."""

    def __init__(
        self, path: Path, job: EmbedJob, others: dict[str, Kind], *, sentence_index: bool
    ) -> None:
        self._file = path.open("w", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, at: Any) -> None:  # noqa: ANN401
        self._file.close()

    def write(self, row: Row) -> None:
        """Write one line."""
        vectors = row.vectors.astype(float).tolist()
        record = {"line": row.line, "tokens": row.tokens, **row.others, "vectors": vectors}
        self._file.write(json.dumps(record) + "\n")
