"""The files of Swords: contexts, target words, and candidates with the votes of annotators.

The weight of a candidate is the fraction of annotators that accept it (Lee et al., 2021).
"""

from pathlib import Path
from typing import Any

import numpy as np

from elmore import strict_json
from elmore.errors import DataError
from elmore.probe.suite.embeddings import Tokens
from elmore.probe.suite.files import find_file
from elmore.probe.suite.substitution_set import SubstitutionSet, Target
from elmore.text.files import numbered_lines
from elmore.text.sentences import split_sentences
from elmore.text.tokenizers import penn

_ACCEPTING = ("TRUE", "TRUE_IMPLICIT")
_LEVELS = {"acceptable": 0.5 + 1e-4, "conceivable": 0.1}  # as in the benchmark
_LABELS = (*_ACCEPTING, "FALSE", "FALSE_IMPLICIT", "UNSURE")


def read_swords(folder: Path) -> SubstitutionSet:
    """Read `swords-v1.1_dev.json.gz` and `swords-v1.1_test.json.gz`, or another version."""
    dev, test = (
        _read_targets(find_file(folder, f"swords-*_{name}.json")) for name in ("dev", "test")
    )
    return SubstitutionSet(dev, test, accepted=_LEVELS["acceptable"], levels=_LEVELS)


def _read_targets(path: Path) -> list[Target]:
    data = strict_json.parse("\n".join(line for _, line in numbered_lines(path)), str(path))
    tables: dict[str, dict] = {}
    for key in ("contexts", "targets", "substitutes", "substitute_labels"):
        table = data.get(key) if isinstance(data, dict) else None
        if not isinstance(table, dict):
            raise DataError(f"{path}: expected an object with the object {key!r} in it")
        tables[key] = table
    candidates = _collect_candidates(path, tables)
    targets = [
        target
        for key, weights in candidates.items()
        if (target := _build_target(path, tables, key, weights))
    ]
    if not targets:
        raise DataError(f"{path}: found no target with an accepted substitute")
    return targets


def _collect_candidates(path: Path, tables: dict[str, dict]) -> dict[str, dict[str, list[bool]]]:
    """Return for each target its candidates, and whether each annotator accepts them."""
    candidates: dict[str, dict[str, list[bool]]] = {}
    for key in tables["substitutes"]:
        target = _field(path, tables["substitutes"], key, "target_id", str)
        text = _field(path, tables["substitutes"], key, "substitute", str).strip().lower()
        labels = tables["substitute_labels"].get(key)
        if not isinstance(labels, list) or not all(label in _LABELS for label in labels):
            raise DataError(f"{path}: substitute {key!r}: expected labels such as TRUE or FALSE")
        votes = [label in _ACCEPTING for label in labels if label != "UNSURE"]
        if votes:
            candidates.setdefault(target, {}).setdefault(text, []).extend(votes)
    return candidates


def _build_target(
    path: Path, tables: dict[str, dict], key: str, candidates: dict[str, list[bool]]
) -> Target | None:
    """Return a target, or None if no candidate is accepted by anybody."""
    word = _field(path, tables["targets"], key, "target", str)
    offset = _field(path, tables["targets"], key, "offset", int)
    context = _field(path, tables["targets"], key, "context_id", str)
    text = _field(path, tables["contexts"], context, "context", str)
    if not word or offset < 0 or text[offset : offset + len(word)] != word:
        raise DataError(f"{path}: target {key!r}: {word[:40]!r} is not at its offset {offset}")
    words = {text: tuple(penn(text).words) for text in candidates if text != word.lower()}
    words = {text: tokens for text, tokens in words.items() if tokens}
    weights = np.array([np.mean(candidates[text]) for text in words])
    if not weights.any():
        return None
    return Target(*_locate_word(text, offset), list(words.values()), weights)


def _field(path: Path, table: dict, key: str, name: str, kind: type) -> Any:  # noqa: ANN401 -- of that type
    entry = table.get(key)
    value = entry.get(name) if isinstance(entry, dict) else None
    if type(value) is not kind:
        raise DataError(f"{path}: {key[:60]!r}: expected an entry with {name!r}")
    return value


def _locate_word(text: str, offset: int) -> tuple[Tokens, int]:
    """Return the sentence around an offset, and the position of the token there."""
    start, end = next((a, b) for a, b in split_sentences(text) if offset < b)
    tokens = penn(text[start:end])
    position = sum(last + start <= offset for _, last in tokens.offsets)
    return tuple(tokens.words), position
