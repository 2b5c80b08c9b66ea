"""Coreference in the columns of CoNLL-2012 (Pradhan et al., 2012), the format of OntoNotes.

`#begin document (name); part 000` begins a document; a name such as `bn/cnn/03/cnn_0310` begins
with its genre. Columns are separated by spaces: the word is the fourth, its speaker the tenth, and
the last one has brackets such as `(12|(3)|4)`, or `-`.
"""

import re
from collections.abc import Iterable, Iterator

from elmore.errors import DataError
from elmore.numbers import parse_uint
from elmore.tasks.coref.brackets import Brackets, Unbalanced, marks
from elmore.tasks.coref.document import Block, Document, DocumentBuilder

BEGIN = "#begin document"
_HEAD = re.compile(r"#begin document \((.*)\)(?:; part (\d+))?\s*")
_BRACKET = re.compile(r"(\()?(\d+)(\))?")
_WORD, _SPEAKER = 3, 9
_MIN_COLUMNS = 12


def parse_conll2012(
    blocks: Iterable[Block], *, unbalanced: Unbalanced = "error"
) -> Iterator[Document]:
    """Parse documents; the speaker of a sentence is that of its first word."""
    document: DocumentBuilder | None = None
    for block in blocks:
        rows: list[tuple[str, list[str]]] = []
        for where, line in block:
            if not line.startswith("#"):
                rows.append(_row(where, line, rows))
            elif line.startswith((BEGIN, "#end document")):
                _finish(document, rows, unbalanced)
                rows = []
                if document:
                    yield document.document()
                document = _begin_document(where, line) if line.startswith(BEGIN) else None
        _finish(document, rows, unbalanced)
    if document:
        yield document.document()


def _begin_document(where: str, line: str) -> DocumentBuilder:
    match = _HEAD.fullmatch(line)
    part = parse_uint(match[2] or "0") if match else None
    if match is None or part is None:
        raise DataError(
            f"{where}: expected '#begin document (name); part 000', found {line[:60]!r}"
        )
    builder = DocumentBuilder(where, match[1], part)
    genre, slash, _ = match[1].partition("/")
    builder.genre = genre if slash else ""
    return builder


def _row(where: str, line: str, rows: list[tuple[str, list[str]]]) -> tuple[str, list[str]]:
    # Not `split()`: a no-break space may be part of a token.
    fields = re.split("[ \t]+", line.strip(" \t"))
    if len(fields) < _MIN_COLUMNS:
        raise DataError(
            f"{where}: a line of CoNLL-2012 has {_MIN_COLUMNS} columns or more, found "
            f"{len(fields)} in {line[:40]!r}"
        )
    if rows and len(fields) != len(rows[0][1]):
        raise DataError(
            f"{where}: found {len(fields)} columns where the sentence has {len(rows[0][1])} above"
        )
    return where, fields


def _finish(
    document: DocumentBuilder | None, rows: list[tuple[str, list[str]]], unbalanced: Unbalanced
) -> None:
    """Add a sentence to its document."""
    if not rows:
        return
    if document is None:
        raise DataError(
            f"{rows[0][0]}: a sentence outside of any document; expected a line such as "
            "'#begin document (name); part 000' before it"
        )
    brackets = Brackets(unbalanced)
    for number, (where, fields) in enumerate(rows):
        for mark in [] if fields[-1] in ("-", "_", "*") else fields[-1].split("|"):
            match = _BRACKET.fullmatch(mark)
            if not match or not (match[1] or match[3]):
                raise DataError(
                    f"{where}: expected '-' or brackets such as '(12|(3)|4)' in the last column, "
                    f"found {fields[-1]!r}"
                )
            if match[1]:
                brackets.open(match[2], number, where)
            if match[3]:
                brackets.close(match[2], number + 1, where)
    speaker = rows[0][1][_SPEAKER]
    tokens = [fields[_WORD] for _, fields in rows]
    document.add(tokens, "" if speaker in ("-", "_", "*") else speaker, brackets.mentions())


def format_conll2012(documents: Iterable[Document]) -> Iterator[str]:
    """Yield the lines of documents: words, speakers and entities, with the other columns empty.

    A space in the name of a document or a speaker becomes `_`; one in a word is an error.
    """
    for document in documents:
        yield f"{BEGIN} ({document.name}); part {document.part:03}"
        name = _without_spaces(document.name)
        rows = zip(document.sentences, document.speakers, marks(document), strict=True)
        for tokens, speaker, brackets in rows:
            for number, (word, here) in enumerate(zip(tokens, brackets, strict=True)):
                if not word or re.search("[ \t\n]", word):
                    raise DataError(
                        f"{document.name}: {word!r} cannot be a word of CoNLL-2012, whose columns "
                        "have blanks between them; write CoNLL-U instead"
                    )
                before = [name, str(document.part), str(number), word, "-", "*", "-", "-", "-"]
                yield "\t".join(
                    [*before, _without_spaces(speaker), "*", "|".join(here.to_list()) or "-"]
                )
            yield ""
        yield "#end document"


def _without_spaces(name: str) -> str:
    return re.sub("[ \t\n]+", "_", name) or "-"
