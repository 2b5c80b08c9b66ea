"""Readers of the files of examples of every task, and of word vectors."""

import json
from pathlib import Path

import numpy as np

from elmore.tasks import registry
from elmore.tasks.data import validate
from elmore.tasks.embedding import word_vectors
from elmore.tasks.srl import data as srl
from tests.fuzz.libraries import PACKERS
from tests.fuzz.reader import Reader
from tests.support import toy_tasks

CONLL2012 = """#begin document (a); part 000
a 0 0 Ann NNP * - - - - * (1
a 0 1 Lee NNP * - - - - * 1)
a 0 2 left VBD * leave 01 - - * -

a 0 0 She PRP * - - - - * (1)
a 0 1 slept VBD * sleep 01 - - * -

#end document
"""
CONLLU = """# newdoc id = a
# global.Entity = eid-etype-head-other
# sent_id = 1
1\tAnn\tAnn\tPROPN\tNNP\t_\t2\tnsubj\t_\tEntity=(e1-person-1
2\tLee\tLee\tPROPN\tNNP\t_\t0\troot\t_\tEntity=e1)
2.1\tx\tx\tX\tX\t_\t_\t_\t_\t_

# sent_id = 2
1-2\tShe's\t_\t_\t_\t_\t_\t_\t_\t_
1\tShe\tshe\tPRON\tPRP\t_\t2\tnsubj\t_\tEntity=(e1-person-1)
2\tleft\tleave\tVERB\tVBD\t_\t0\troot\t_\t_
"""


def _text(name: str, kind: str, text: str | None = None):
    def make(folder: Path) -> None:
        if text is None:
            toy_tasks.write(kind, folder / name, 6)
        else:
            (folder / name).write_text(text, encoding="utf-8")

    return make


def _read(kind: str):
    result = registry.find_task(kind)

    def read(folder: Path) -> None:
        (path,) = folder.iterdir()
        solver = result(registry.load_recipe(result))
        read_ones = solver.read_examples(path)
        labels = solver.collect_labels(read_ones)
        solver.make_features(read_ones, labels, with_gold=True)
        validate.validate_files(solver, {"train": path, "dev": path})

    return read


def _squad_lines() -> str:
    one = {"context": "Ann saw Rome .", "question": "Who ?", "answer": "Ann", "answer_start": 0}
    other = {**one, "id": "2", "answers": {"text": ["Rome"], "answer_start": [8]}}
    return "".join(json.dumps(line) + "\n" for line in (one, other))


def _snli_lines() -> str:
    one = {"gold_label": "neutral", "sentence1": "Ann left .", "sentence2": "Bo left ."}
    return "".join(
        json.dumps(one | {"gold_label": label}) + "\n" for label in ("neutral", "-", "entailment")
    )


def _framed(form):
    def make(folder: Path) -> None:
        toy_tasks.write("srl", folder / "props.txt", 4)
        result = srl.read_srl(folder / "props.txt", form="conll2005")
        srl.write_srl(folder / "props.txt", result, form)

    return make


def _vectors(folder: Path) -> None:
    lines = ["the 0.1 0.2 0.3", "cat 1 2 3", "New York -1 2e-3 0"]
    (folder / "a.txt").write_text("\n".join(lines))
    (folder / "b.vec").write_text("\n".join(["3 3", *lines]))
    (folder / "c.txt.gz").write_bytes(PACKERS[".gz"][0]("\n".join(lines).encode()))
    matrix = np.arange(6, dtype="<f4").reshape(2, 3)
    binary = b"2 3\n" + b"".join(
        w + b" " + row.tobytes() + b"\n" for w, row in zip((b"a", b"b"), matrix, strict=True)
    )
    (folder / "d.bin").write_bytes(binary)
    (folder / "e.bin.gz").write_bytes(PACKERS[".gz"][0](binary))
    np.save(folder / "f.f16.npy", matrix.astype("<f2"))
    (folder / "f.words.txt").write_text("a\nb\n")


def _read_vectors(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        if path.name != "f.words.txt":
            word_vectors.read_word_vectors(path).lookup(["the", "none"])


def _of(kind: str, name: str, text: str | None = None, modules: tuple[str, ...] = ()) -> Reader:
    own = (f"elmore.tasks.{kind}.data", "elmore.tasks.data.columns", *modules)
    return Reader(f"{kind}: {name}", own, _text(name, kind, text), _read(kind))


READERS = (
    _of("ner", "names.txt"),
    _of("pos", "tags.conllu", modules=("elmore.tasks.data.conllu",)),
    _of("sst", "trees.txt"),
    _of("snli", "pairs.txt"),
    _of("snli", "pairs.jsonl", _snli_lines()),
    _of("squad", "questions.json"),
    _of("squad", "questions.jsonl", _squad_lines()),
    _of("coref", "documents.conll", CONLL2012, ("elmore.tasks.coref.conll2012",)),
    _of("coref", "documents.conllu", CONLLU, ("elmore.tasks.coref.conllu",)),
    *(
        Reader(
            f"srl: {form}",
            ("elmore.tasks.srl.data", "elmore.tasks.srl.props"),
            _framed(form),
            _read("srl"),
        )
        for form in ("conll2005", "conll2012", "propbank")
    ),
    Reader(
        "word vectors",
        ("elmore.tasks.embedding.word_vectors", "elmore.npy"),
        _vectors,
        _read_vectors,
        share=2,
    ),
)
