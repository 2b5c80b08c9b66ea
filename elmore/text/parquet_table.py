"""Read the rows of a `.parquet` file, whose columns are converted a batch at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Literal

from elmore.errors import DataError

_BATCH = 1024  # rows


class ParquetTable:
    """An open `.parquet` file."""

    def __init__(self, name: str, file: IO[bytes]) -> None:
        """Open a table.

        Raises:
            DataError: pyarrow is not installed, or the file is damaged.
        """
        try:
            from pyarrow import parquet
        except ImportError as error:
            raise DataError(
                f"{name}: parquet needs pyarrow: pip install 'elmore[embed]'"
            ) from error
        self.name = name
        with self._explain_errors():
            self._file = parquet.ParquetFile(file)
            self.columns: list[str] = self._file.schema_arrow.names

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        from pyarrow import ArrowException

        try:
            yield
        except (ArrowException, OSError) as error:
            raise DataError(f"{self.name}: not a readable parquet file ({error})") from error

    def rows(
        self, column: str, *, others: bool, errors: Literal["strict", "replace"]
    ) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield the value of a column and, if wanted, those of the others by their names.

        Args:
            column: One of the columns.
            others: Whether the others are wanted.
            errors: Whether bytes that are not UTF-8 are refused or replaced.

        Raises:
            DataError: The file is damaged, or text is not UTF-8.
        """
        for name in self.columns if others else [column]:
            if self.columns.count(name) > 1:
                raise DataError(f"{self.name}: two columns are named {name!r}; rename one of them")
        done = 0
        with self._explain_errors():
            for batch in self._file.iter_batches(_BATCH, columns=None if others else [column]):
                values = {
                    name: self._convert(array, done, errors, "" if name == column else name)
                    for name, array in zip(batch.schema.names, batch.columns, strict=True)
                }
                chosen = values.pop(column)
                done += len(chosen)
                if not values:
                    yield from ((value, {}) for value in chosen)
                    continue
                for value, rest in zip(chosen, zip(*values.values(), strict=True), strict=True):
                    yield value, dict(zip(values, rest, strict=True))

    def _convert(
        self,
        array: Any,  # noqa: ANN401 -- of pyarrow
        first_row: int,
        errors: Literal["strict", "replace"],
        column: str,
    ) -> list[Any]:
        """Return an array of Arrow as a list; `column` is named in errors."""
        try:
            return array.to_pylist()
        except UnicodeDecodeError as error:  # pyarrow does not validate text
            decoded = _decode(array) if errors == "replace" else None
            if decoded is not None:
                return decoded
            row = first_row + 1 + next(i for i, value in enumerate(array) if not _is_utf8(value))
            where = f"row {row}{f', column {column!r},' if column else ''}"
            advice = "fix it, or pass --errors replace" if errors == "strict" else "fix it"
            raise DataError(
                f"{self.name}: {where} is not UTF-8 at its byte {error.start + 1}; {advice}"
            ) from error
        except (ValueError, OverflowError):  # a date that Python does not have
            return array.cast("string").to_pylist()


def _is_utf8(value: Any) -> bool:  # noqa: ANN401 -- of pyarrow
    try:
        value.as_py()
    except UnicodeDecodeError:
        return False
    return True


def _decode(array: Any) -> list[Any] | None:  # noqa: ANN401 -- of pyarrow
    """Return texts, or lists of texts, with bytes that are not UTF-8 replaced; else None."""
    import pyarrow

    if pyarrow.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind: Any = pyarrow.large_binary()
    if pyarrow.types.is_list(array.type) or pyarrow.types.is_large_list(array.type):
        kind = pyarrow.large_list(kind)
    try:
        values = array.cast(kind).to_pylist()
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError):
        return None
    return [_decode_value(value) for value in values]


def _decode_value(value: bytes | list[bytes | None] | None) -> str | list | None:
    if isinstance(value, list):
        return [_decode_value(one) for one in value]
    return None if value is None else value.decode("utf-8", "replace")
