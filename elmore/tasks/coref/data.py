"""Read and write documents with coreference: CoNLL-U and CoNLL-2012."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from elmore import atomic
from elmore.errors import DataError
from elmore.tasks.coref.brackets import Unbalanced
from elmore.tasks.coref.conll2012 import BEGIN, format_conll2012, parse_conll2012
from elmore.tasks.coref.conllu import format_conllu, parse_conllu
from elmore.tasks.coref.document import Document
from elmore.tasks.data.columns import read_blocks

Format = Literal["conllu", "conll2012"]
_FORMATTERS = {"conllu": format_conllu, "conll2012": format_conll2012}


def read_documents(path: str | Path, *, unbalanced: Unbalanced = "error") -> list[Document]:
    """Read the documents of a file; its format is detected from its first lines.

    A bracket without its counterpart is an error that names file and line; with `skip` it is
    skipped with a warning.
    """
    blocks = list(read_blocks(path))
    begins = any(line.startswith(BEGIN) for block in blocks[:1] for _, line in block)
    parse = parse_conll2012 if begins else parse_conllu
    documents = list(parse(blocks, unbalanced=unbalanced))
    if not documents:
        raise DataError(
            f"{path}: no document found; expected CoNLL-U with '# newdoc id = name' or CoNLL-2012 "
            "with '#begin document (name); part 000'"
        )
    return documents


def write_documents(
    path: str | Path, documents: Iterable[Document], form: Format = "conllu"
) -> None:
    """Write documents to a file, completely or not at all."""
    lines = _FORMATTERS[form](documents)
    atomic.write(Path(path), "".join(f"{line}\n" for line in lines).encode())
