"""Coreference in CoNLL-U, as in GUM, OntoGUM and CorefUD: `Entity=` in the last column.

`# newdoc id = …` begins a document, whose genre a line `# meta::genre = …` may name;
`# speaker = …` precedes a sentence. The value of `Entity` is a
sequence of brackets, such as `3)(5-person(8-place)`: an entity with further fields, which the line
`# global.Entity = eid-etype-…` names. A discontinuous mention, `(3[1/2]` … `3[2/2])`, is read as
the span from its first token to its last.
"""

import re
from collections.abc import Iterable, Iterator

from elmore.errors import DataError
from elmore.tasks.coref.brackets import Brackets, Marks, Unbalanced, marks
from elmore.tasks.coref.document import Block, Document, DocumentBuilder
from elmore.tasks.data.conllu import parse_line

_COMMENT = re.compile(
    r"#\s*(newdoc|meta::genre|speaker|global\.Entity)(?:\s+id)?\s*(?:=\s*(.*?))?\s*"
)
_BRACKET = re.compile(r"(\()?([^()]+)(\))?")
_PIECE = re.compile(r"(.*)\[(\d+)/(\d+)\]")


def parse_conllu(
    blocks: Iterable[Block], *, unbalanced: Unbalanced = "error"
) -> Iterator[Document]:
    """Parse documents; of a multiword token such as `don't` (3-4), the two words are read."""
    document: DocumentBuilder | None = None
    entity_field = 0  # which field of an opening bracket is the entity's name
    for block in blocks:
        sentence = _Sentence(unbalanced)
        for where, line in block:
            key, value = _comment(line)
            if key == "newdoc":
                if document:
                    yield document.document()
                document, entity_field = DocumentBuilder(where, value), 0
            elif key in ("speaker", "meta::genre"):
                sentence.comments[key] = value
            elif key == "global.Entity":
                entity_field = _entity_field(value)
            elif not line.startswith("#"):
                sentence.add(where, line, entity_field)
        if sentence.tokens:
            builder = _require_document(document, block[0][0])
            builder.genre = sentence.comments.get("meta::genre", builder.genre)
            speaker = sentence.comments.get("speaker", "")
            builder.add(sentence.tokens, speaker, sentence.brackets.mentions())
    if document:
        yield document.document()


def _comment(line: str) -> tuple[str, str]:
    """Return key and value of a comment, if it is one of those that are used."""
    match = _COMMENT.fullmatch(line)
    return (match[1], match[2] or "") if match else ("", "")


def _require_document(document: DocumentBuilder | None, where: str) -> DocumentBuilder:
    if document is None:
        raise DataError(
            f"{where}: a sentence before the first document; expected a line such as "
            "'# newdoc id = name', or '#begin document (name); part 000' of CoNLL-2012"
        )
    return document


def _entity_field(names: str) -> int:
    """Return which field of a bracket is the entity's name; by default the first."""
    fields = names.split("-")
    return next((fields.index(name) for name in ("eid", "GRP") if name in fields), 0)


class _Sentence:
    """Collects the lines of a sentence."""

    def __init__(self, unbalanced: Unbalanced) -> None:
        self.tokens: list[str] = []
        self.comments: dict[str, str] = {}
        self.brackets = Brackets(unbalanced)

    def add(self, where: str, line: str, entity_field: int) -> None:
        fields = parse_line(where, line)
        start = len(self.tokens)
        if fields[0].isdecimal():
            self.tokens.append(fields[1])
        for note in fields[-1].split("|"):
            name, _, value = note.partition("=")
            if name == "Entity":
                self._add_brackets(where, value, entity_field, start)

    def _add_brackets(self, where: str, value: str, entity_field: int, start: int) -> None:
        """Add the brackets of a word; those of an empty node go around the next word."""
        matches = list(_BRACKET.finditer(value))
        is_complete = bool(matches) and "".join(match[0] for match in matches) == value
        names = [_name(match[2], entity_field) for match in matches]
        if not (is_complete and all(names) and all(match[1] or match[3] for match in matches)):
            raise DataError(
                f"{where}: expected brackets such as '(3', '3)' or '(3)' after 'Entity=', found "
                f"{value!r}"
            )
        for match, name in zip(matches, names, strict=True):
            piece = _PIECE.fullmatch(name)
            name, number, pieces = piece.groups() if piece else (name, "1", "1")
            if match[1] and number == "1":
                self.brackets.open(name, start, where, pieces)
            if match[3] and number == pieces:
                self.brackets.close(name, len(self.tokens), where, pieces)


def _name(inside: str, entity_field: int) -> str:
    """Return the entity of a bracket; a closing one may have no other field."""
    fields = inside.split("-")
    return fields[entity_field] if entity_field < len(fields) else fields[0]


def format_conllu(documents: Iterable[Document]) -> Iterator[str]:
    """Yield the lines of documents: words and entities, with the columns between empty."""
    for document in documents:
        name = document.name if not document.part else f"{document.name}_{document.part}"
        yield f"# newdoc id = {name}"
        yield "# global.Entity = eid"
        if document.genre:
            yield f"# meta::genre = {document.genre}"
        rows = zip(document.sentences, document.speakers, marks(document), strict=True)
        for number, (tokens, speaker, brackets) in enumerate(rows, start=1):
            yield f"# sent_id = {name}-{number}"
            if speaker:
                yield f"# speaker = {speaker}"
            for position, (token, here) in enumerate(zip(tokens, brackets, strict=True), start=1):
                if not token or "\t" in token or "\n" in token:
                    raise DataError(f"{name}: {token!r} cannot be a word of CoNLL-U")
                yield "\t".join([str(position), token, *"_______", _entity(here)])
            yield ""


def _entity(here: Marks) -> str:
    brackets = "".join(here.to_list())
    return f"Entity={brackets}" if brackets else "_"
