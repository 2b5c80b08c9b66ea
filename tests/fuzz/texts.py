"""Readers of text in all its packings, of prepared corpora, and of journals of long jobs."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow
import zstandard
from pyarrow import parquet

from elmore import npy
from elmore.corpus import lint, shards, stream
from elmore.corpus.options import PrepareOptions
from elmore.corpus.prepare import prepare
from elmore.embed import pooling
from elmore.embed.jobs import job, layer_cache
from elmore.embed.jobs.journal import text_digest
from elmore.lm.unknown_word_cost import UnknownWordCost
from elmore.model.config import LSTMConfig
from elmore.text.csv_table import read_table
from elmore.text.files import Lines
from elmore.text.vocabulary import Vocabulary
from elmore.weights.forward_state import ForwardState
from elmore.weights.pooling import TextPooling
from elmore.weights.whitening import Whitening
from tests.formats import make
from tests.fuzz.libraries import PACKERS
from tests.fuzz.reader import FORMATS, Reader

TEXT = "the old bridge lies near the lake .\na grey cat waits in Zürich !\n\ntwo ships\n"
CSV = "n,text\n" + "".join(f"1,{line}\n" for line in make.TEXTS)
JSONL = "".join(json.dumps({"text": line, "n": 1}) + "\n" for line in (*make.TEXTS, ["a", "b"]))


def _packed(folder: Path) -> None:
    texts = {"plain.txt": TEXT, "table.jsonl": JSONL, "table.csv": CSV}
    for name, text in {**texts, "table.tsv": CSV.replace(",", "\t")}.items():
        data = text.encode()
        (folder / name).write_bytes(data)
        (folder / f"{name}.zst").write_bytes(zstandard.compress(data))
        for ending, (pack, _) in PACKERS.items():
            (folder / f"{name}{ending}").write_bytes(pack(data))
    parquet.write_table(
        pyarrow.table({"text": TEXT.split("\n"), "n": range(5)}), folder / "t.parquet"
    )


def _read_lines(folder: Path) -> None:
    for errors in ("strict", "replace"):
        for path in sorted(folder.iterdir()):
            for others in (False, True):
                for _ in Lines([str(path)], errors=errors).rows(others=others):
                    pass


def _tables(folder: Path) -> None:
    for name, line in (("t.csv", '1,"a, ""b""\nc",'), ("t.tsv", "1\tZürich\t300")):
        header = "story,word,rt" if name == "t.csv" else "story\tword\trt"
        (folder / name).write_text(f"{header}\n" + f"{line}\n" * 5, encoding="utf-8")


def _read_tables(folder: Path) -> None:
    for errors in ("strict", "replace"):
        for path in sorted(folder.iterdir()):
            assert len(read_table(str(path), errors=errors).column("word")) <= 10


def _text(folder: Path) -> None:
    (folder / "plain.txt").write_text(TEXT * 20)
    (folder / "vocabulary.txt").write_text("<S>\n</S>\n<UNK>\nthe\ncat\n")


def _prepare(folder: Path) -> None:
    names = [str(folder / "plain.txt")]
    lint.lint_corpus(names, PrepareOptions())
    prepare(
        names, folder / "out", PrepareOptions(valid_fraction=0.2), num_workers=1,
        vocabulary=folder / "vocabulary.txt"
    )  # fmt: skip


def _vocabularies(folder: Path) -> None:
    data = (FORMATS / "corpus-1" / "vocabulary.txt").read_bytes()
    (folder / "words.txt").write_bytes(data)
    (folder / "words.txt.gz").write_bytes(PACKERS[".gz"][0](data))


def _read_vocabularies(folder: Path) -> None:
    for path in folder.iterdir():
        Vocabulary.read(path).ids(["the", "none"])


def copy(name: str):
    def make_it(folder: Path) -> None:
        shutil.copytree(FORMATS / name, folder, dirs_exist_ok=True)

    return make_it


def _read_corpus(folder: Path) -> None:
    corpus = shards.open_corpus(folder)
    corpus.verify()
    targets = corpus.word_ids()
    list(corpus.types)
    assert corpus.counts.shape
    spelling = UnknownWordCost(corpus.types, targets, 2, corpus.byte_counts.tolist())
    for split in ("train", "valid", "all"):
        tokens = corpus.split(split)
        spelling.count(tokens)
        streams = stream.TBPTTDataset(
            tokens, stream.StreamConfig(batch_size=2, unroll_steps=5, shuffle_block=16), seed=0
        )
        for window in (
            streams.batch(0),
            streams.batch(7),
            *stream.eval_batches(tokens, batch_size=3, unroll_steps=50),
        ):
            targets[window.types]


def _repair_corpus(folder: Path) -> None:
    """Where the index is still one, it says what the files are now."""
    try:
        index = json.loads((folder / shards.INDEX).read_bytes())
        for name, file in index["files"].items():
            data = (folder / name).read_bytes()
            file |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        index["sha256"] = shards.index_sha256(index)
        (folder / shards.INDEX).write_text(json.dumps(index))
    except (ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError):
        pass  # damaged beyond that


def _begun_preparation(folder: Path) -> None:
    """What a kill leaves after the first part."""
    text = folder / "text.txt"
    text.write_text(TEXT)
    from elmore.corpus import merge

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    before, merge.merge_parts = merge.merge_parts, killed
    try:
        prepare([str(text)], folder / "out", PrepareOptions(), num_workers=1)
    except KeyboardInterrupt:
        pass
    finally:
        merge.merge_parts = before


def _resume_preparation(folder: Path) -> None:
    prepare(
        [str(folder / "text.txt")], folder / "out", PrepareOptions(), num_workers=1, resume=True
    )


def _resume_embedding(folder: Path) -> None:
    elmo = _elmo()
    job.run_job(elmo, make.TEXTS, folder / "vectors.jsonl", make.described(elmo), resume=True)


def _repair_journal(folder: Path) -> None:
    parts = folder / "vectors.jsonl.parts"
    try:
        note = json.loads((parts / "part-00000.json").read_bytes())
        note["content"] = text_digest([note["texts"], note["tokens"]])
        note["input"] = text_digest(note["texts"])
        note["sha256"] = hashlib.sha256((parts / "part-00000.bin").read_bytes()).hexdigest()
        (parts / "part-00000.json").write_text(json.dumps(note))
    except (ValueError, TypeError, KeyError, OSError, RecursionError):
        pass


_ELMO: list = []


def _elmo():
    if not _ELMO:
        _ELMO.append(make.embedder())
    return _ELMO[0]


def _read_layers(folder: Path) -> None:
    layer_cache.load_or_compute(_elmo(), make.TOKENS, folder).of(make.TOKENS)


def _repair_layers(folder: Path) -> None:
    (path,) = folder.glob("*.npy")
    data = path.read_bytes()[:-32]
    path.write_bytes(data + hashlib.sha256(data).digest())


def _read_pooling(folder: Path) -> None:
    for path in folder.iterdir():
        learned = TextPooling.load(path)
        pooling.pool(["the"], np.ones((1, 8), np.float32), learned)


def _read_state(folder: Path) -> None:
    state = ForwardState.load(folder / "state.npz")
    state.check(LSTMConfig(cell_dim=8, output_dim=4), state.model)
    repr(state)


def _state(folder: Path) -> None:
    shutil.copy(FORMATS / "state-1" / "state.npz", folder)


def _pooling(folder: Path) -> None:
    for name in ("pooling-1", "pooling-2"):
        shutil.copy(FORMATS / name / "pooling.npz", folder / f"{name}.npz")


def _read_whitening(folder: Path) -> None:
    for path in folder.iterdir():
        _ = Whitening.load(path).bias


def _whitening(folder: Path) -> None:
    shutil.copy(FORMATS / "whitening-1" / "whitening.npz", folder / "whitening.npz")


def _arrays(folder: Path) -> None:
    np.save(folder / "a.npy", np.arange(6.0).reshape(2, 3))
    np.save(folder / "b.npy", np.arange(5, dtype=np.uint32))


def _read_arrays(folder: Path) -> None:
    for path in folder.iterdir():
        npy.read_npy(path).sum()
        npy.map_npy(path).sum()


READERS = (
    Reader(
        "text, packed",
        ("elmore.text.files", "elmore.text.parquet_table"),
        _packed,
        _read_lines,
    ),
    Reader(
        "text to prepare", ("elmore.text.files", "elmore.corpus.blocks"), _text, _prepare, share=0.5
    ),
    Reader("tables", ("elmore.text.csv_table", "elmore.text.files"), _tables, _read_tables),
    Reader("vocabulary", ("elmore.text.vocabulary",), _vocabularies, _read_vocabularies),
    Reader(
        "corpus",
        ("elmore.corpus.shards", "elmore.corpus.index", "elmore.corpus.type_table", "elmore.npy"),
        copy("corpus-1"),
        _read_corpus,
        _repair_corpus,
    ),
    Reader(
        "journal of a preparation",
        ("elmore.journal", "elmore.corpus.journal"),
        _begun_preparation,
        _resume_preparation,
    ),
    Reader(
        "journal of an embedding",
        ("elmore.journal", "elmore.embed.jobs.journal"),
        copy("journal-1"),
        _resume_embedding,
        _repair_journal,
    ),
    Reader(
        "layer cache",
        ("elmore.embed.jobs.layer_cache",),
        copy("layers-1"),
        _read_layers,
        _repair_layers,
    ),
    Reader("state", ("elmore.weights.forward_state", "elmore.npy"), _state, _read_state),
    Reader("pooling", ("elmore.weights.pooling", "elmore.npy"), _pooling, _read_pooling),
    Reader("whitening", ("elmore.weights.whitening", "elmore.npy"), _whitening, _read_whitening),
    Reader("arrays", ("elmore.npy",), _arrays, _read_arrays),
)
