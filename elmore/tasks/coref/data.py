"""Documents with coreference, from files and into files: CoNLL-U and CoNLL-2012."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from elmore import atomic
from elmore.errors import DataError
from elmore.tasks.coref import conll2012, conllu
from elmore.tasks.coref.brackets import Unbalanced
from elmore.tasks.coref.document import Document
from elmore.tasks.data.columns import read_blocks

Format = Literal["conllu", "conll2012"]
_FORMATS = {"conllu": conllu, "conll2012": conll2012}


def read_documents(path: str | Path, *, unbalanced: Unbalanced = "refuse") -> list[Document]:
    """Read the documents of a file; which format it is, its first lines say.

    Of a bracket without its other half, the file and line are named; with `drop` it is left out.
    """
    found = list(read_blocks(path))
    begins = any(line.startswith(conll2012.BEGIN) for block in found[:1] for _, line in block)
    form = conll2012 if begins else conllu
    documents = list(form.read(found, unbalanced=unbalanced))
    if not documents:
        raise DataError(
            f"{path}: no document found; expected CoNLL-U with '# newdoc id = name' or CoNLL-2012 "
            "with '#begin document (name); part 000'"
        )
    return documents


def write_documents(
    path: str | Path, documents: Iterable[Document], form: Format = "conllu"
) -> None:
    """Write documents into a file, complete or not at all."""
    lines = _FORMATS[form].lines(documents)
    atomic.write(Path(path), "".join(f"{line}\n" for line in lines).encode())
