"""Rows for a study of reading: surprisal beside the columns that an experimenter has already."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from elmore.errors import DataError
from elmore.lm.surprisal import WordSurprisal
from elmore.text.csv_table import Table
from elmore.text.written_words import WrittenText

Row = dict[str, Any]
Measure = Callable[[WrittenText, float | None], list[WordSurprisal]]
"""Measures a text; gets the fraction of the input that is done with it, if known."""

LAGGED = ("length", "forward", "entropy", "unigram")
"""Columns that are repeated for the words before, whose difficulty spills over."""


def word_rows(words: Sequence[WordSurprisal], *, spillover: int = 2) -> list[Row]:
    """Return a row for each word, with the columns of the words before it.

    Args:
        words: The words of one text.
        spillover: N: `forward_1` to `forward_N` have the surprisal of the word 1 to N words
            earlier, and so on for the other `LAGGED` columns; None before the first word. A region
            without characters is not a word that was read, so it is passed over.
    """
    rows = [word._asdict() for word in words]
    before: list[Row] = []  # words with characters, the last one first
    for word, row in zip(words, rows, strict=True):
        own = dict(row)
        for lag in range(1, spillover + 1):
            earlier = before[lag - 1] if lag <= len(before) else {}
            row |= {f"{name}_{lag}": earlier.get(name) for name in LAGGED}
        if word.tokens:
            before = [own, *before[: spillover - 1]]
    return rows


def table_rows(
    table: Table,
    column: str,
    measure: Measure,
    *,
    split: Callable[[str], WrittenText],
    join: Callable[[Sequence[str]], WrittenText],
    by: Sequence[str] = (),
    spillover: int = 2,
    prefix: str = "",
) -> Iterator[Row]:
    """Yield the rows of a table with the measures of their words.

    Without `by`, a cell is a text, and its row is repeated for each of its words. With `by`, a row
    is a word, and rows with the same values in these columns are one text, in their order; a text
    that several readers have read is measured once.

    Args:
        table: The table.
        column: Its column of texts or words.
        measure: Measures a text.
        split: Splits a text into words.
        join: Makes a text of words.
        by: Columns that tell texts apart.
        spillover: Number of words before, as in `word_rows`.
        prefix: Before the names of the measures.

    Raises:
        DataError: The table lacks a column, or has one that would be written twice.
    """
    cells = table.column(column)
    keys = list(zip(*(table.column(name) for name in by), strict=True))
    measured = added_columns(spillover, skip_word=bool(by))
    _check_names(table, [prefix + name for name in measured])

    def added(row: Row) -> Row:
        return {prefix + name: row[name] for name in measured}

    if not by:
        for number, (row, cell) in enumerate(zip(table.rows, cells, strict=True), start=1):
            for word in word_rows(measure(split(cell), number / len(cells)), spillover=spillover):
                yield dict(zip(table.columns, row, strict=True)) | added(word)
        return
    members: dict[tuple[str, ...], list[int]] = {}
    for number, key in enumerate(keys):
        members.setdefault(key, []).append(number)
    texts = [
        tuple(" ".join(cells[number].split()) for number in numbers) for numbers in members.values()
    ]
    distinct = dict.fromkeys(texts)
    done, total = 0, sum(map(len, distinct))
    known: dict[tuple[str, ...], list[Row]] = {}
    for text in distinct:
        done += len(text)
        known[text] = word_rows(measure(join(text), done / total), spillover=spillover)
    words: dict[int, Row] = {}
    for numbers, text in zip(members.values(), texts, strict=True):
        words |= zip(numbers, known[text], strict=True)
    for number, row in enumerate(table.rows):
        yield dict(zip(table.columns, row, strict=True)) | added(words[number])


def added_columns(spillover: int, *, skip_word: bool = False) -> list[str]:
    """Return the names of the columns of `word_rows`, without `word` if a table has it already."""
    lagged = [f"{name}_{lag}" for lag in range(1, spillover + 1) for name in LAGGED]
    return [name for name in WordSurprisal._fields if name != "word" or not skip_word] + lagged


def _check_names(table: Table, added: Sequence[str]) -> None:
    twice = [name for name in added if name in table.columns]
    if twice:
        raise DataError(
            f"{table.name}: the table has a column {twice[0]!r} already, which would be written "
            "twice; pass --prefix, such as --prefix elmore_"
        )
