"""Readers of indexes of uses, and of sense-annotated text with its WordNet."""

import hashlib
import json
from pathlib import Path

import numpy as np

from elmore.probe import wordnet
from elmore.probe.neighbors.index import OccurrenceIndex
from elmore.probe.sense_corpus import SenseCorpus
from elmore.probe.suite import runner
from elmore.probe.wordnet import describe_sense
from tests.fuzz.reader import Reader
from tests.fuzz.texts import _elmo, copy
from tests.support import toy_suite
from tests.support.sense_corpus import write_corpus, write_wordnet


def _search(place: Path) -> None:
    index = OccurrenceIndex.open(place, _elmo())
    result = index.nearest_rows(np.ones(8, np.float32), 3)
    for row in range(min(20, len(index))) if hasattr(index, "__len__") else result.rows:
        index.occurrence(int(row))
    (place / "more.txt").write_text("a lake\n")
    index.append([place / "more.txt"], tokenized=True)


def _repair(place: Path) -> None:
    """Write what the columns are now into the manifest, where it is still one."""
    try:
        manifest = json.loads((place / "index.json").read_bytes())
        (part,) = manifest["texts"][0]["parts"]
        for column in part["columns"]:
            data = (place / column["name"]).read_bytes()
            column |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        (place / "index.json").write_text(json.dumps(manifest))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, OSError, RecursionError):
        pass


def _senses(place: Path) -> None:
    use = ("art", "art", "NOUN", "art%1:04:00::")
    write_corpus(
        place,
        "text",
        [
            [
                ["the", use, "of"],
                ["an", ("took place", "take_place", "VERB", "x%2:30:00:: y%2:30:01::")],
            ]
        ],
    )
    write_wordnet(place / "dict", ("art%1:04:00::", 1), ("art%1:06:00::", 2), ("x%2:30:00::", 1))


def _read_senses(place: Path) -> None:
    result = wordnet.read_wordnet(place / "dict")
    for sentence in SenseCorpus(place / "text.data.xml"):
        for use in sentence.instances:
            for key in (*use.keys, *result.senses(use.lemma, use.pos)):
                describe_sense(key)


_SUITE = {
    "blimp": toy_suite.write_blimp,
    "wic": lambda place: toy_suite.write_wic(place, ("train", "dev", "test")),
    "swords": toy_suite.write_swords,
    "lexsub": toy_suite.write_lexsub,
    "sts": toy_suite.write_sts,
    "sick": toy_suite.write_sick,
}


def _suite(name: str, *modules: str) -> Reader:
    """Read one set of the suite; those of taggings and senses are read by what is covered."""

    def make(place: Path) -> None:
        _SUITE[name](place / name)

    def read(place: Path) -> None:
        runner.find_sets(place, [name])

    return Reader(f"suite: {name}", modules, make, read)


READERS = (
    _suite("blimp", "elmore.probe.suite.blimp"),
    _suite("wic", "elmore.probe.suite.wic"),
    _suite("swords", "elmore.probe.suite.swords_data"),
    _suite("lexsub", "elmore.probe.suite.lexsub_data"),
    _suite("sts", "elmore.probe.suite.sentence_pairs"),
    _suite("sick", "elmore.probe.suite.sentence_pairs"),
    Reader(
        "index of uses",
        (
            "elmore.probe.neighbors.storage",
            "elmore.probe.neighbors.columns",
            "elmore.probe.neighbors.writer",
        ),
        copy("uses-3"),
        _search,
        _repair,
    ),
    Reader(
        "senses",
        ("elmore.probe.sense_corpus", "elmore.probe.wordnet"),
        _senses,
        _read_senses,
        share=2,
    ),
)
