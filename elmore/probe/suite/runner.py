"""Score a model on all sets of a data folder."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from elmore.embed.embedder import Embedder
from elmore.errors import ConfigError, DataError
from elmore.lm.scoring import require_softmax
from elmore.probe.suite import (
    blimp,
    lexical_substitution,
    lexsub_data,
    sentence_pairs,
    swords_data,
    tagging,
    wic,
    word_senses,
)
from elmore.probe.suite.scores import Progress, Score, SuiteResults

ShowProgress = Callable[[str], AbstractContextManager[Progress]]
"""Called with the name of a set; yields a function for its progress reports."""


class _Set(NamedTuple):
    read: Callable[[Path], Any]
    score: Callable[[Embedder, Any, int, Progress], list[Score]]
    needs_softmax: bool = False


SETS = {
    "blimp": _Set(blimp.read_blimp, blimp.score_blimp, needs_softmax=True),
    "wic": _Set(wic.read_wic, wic.score_wic),
    "swords": _Set(swords_data.read_swords, lexical_substitution.score_substitution),
    "lexsub": _Set(lexsub_data.read_lexsub, lexical_substitution.score_substitution),
    "sts": _Set(sentence_pairs.read_sts, sentence_pairs.score_pairs),
    "sick": _Set(sentence_pairs.read_sick, sentence_pairs.score_pairs),
    "pos": _Set(tagging.read_pos, tagging.score_tags),
    "chunk": _Set(tagging.read_spans, tagging.score_tags),
    "ner": _Set(tagging.read_spans, tagging.score_tags),
    "wsd": _Set(word_senses.read_sense_sets, word_senses.score_senses),
}
"""The sets by name; each is in the subfolder of that name."""


class SuiteData(NamedTuple):
    """The contents of sets by name, and the sets that were looked for and are not in the folder."""

    contents: dict[str, Any]
    absent: list[str]


def find_sets(folder: Path, names: Sequence[str] = ()) -> SuiteData:
    """Read all sets of a folder, or only those that are named, which must be there.

    Raises:
        ConfigError: A name is not that of a set.
        DataError: The folder, that of a named set or a file is missing, a file is damaged, or the
            folder has none of the sets.
    """
    for name in names:
        if name not in SETS:
            raise ConfigError(f"there is no set {name!r}; the sets are {', '.join(SETS)}")
    if not folder.is_dir():
        found = "a file" if folder.exists() else "nothing"
        raise DataError(
            f"{folder}: found {found}, expected a folder with subfolders of the sets; pass another "
            "--data"
        )
    for name in names:
        if not (folder / name).is_dir():
            raise DataError(
                f"{folder}: expected a folder {name!r} in it with the files of this set, found none"
            )
    present = names or [name for name in SETS if (folder / name).is_dir()]
    if not present:
        raise DataError(
            f"{folder}: expected a folder in it that is named after a set: {', '.join(SETS)}"
        )
    absent = [] if names else [name for name in SETS if name not in present]
    return SuiteData({name: SETS[name].read(folder / name) for name in present}, absent)


def score_sets(
    elmo: Embedder, data: SuiteData, show_progress: ShowProgress, *, seed: int = 0
) -> SuiteResults:
    """Score a model on sets that `find_sets` read."""
    scores: dict[str, list[Score]] = {}
    skipped: dict[str, str] = {}
    for name, contents in data.contents.items():
        try:
            if SETS[name].needs_softmax:
                require_softmax(elmo.bundle)
        except DataError as error:
            skipped[name] = str(error)
            continue
        with show_progress(name) as progress:
            scores[name] = SETS[name].score(elmo, contents, seed, progress)
    precision = "fast" if elmo.is_fast else "exact"
    return SuiteResults(precision, seed, scores, skipped, data.absent)
