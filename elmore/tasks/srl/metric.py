"""How many arguments were found, counted as the scorer of CoNLL-2005 (srl-eval) counts them.

An argument is right when its label and all its parts are: a C-A1 belongs to the last A1 before it,
and both must be right for the one argument they are. A C-A1 that continues nothing is an A1, an
R-A1 is an argument of its own, and V, the predicate, is none.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elmore.tasks.metrics.bio import extract_spans
from elmore.tasks.metrics.prf import PrecisionRecallF1
from elmore.tasks.srl.data import Frame

Argument = tuple[str, tuple[tuple[int, int], ...]]
"""A label and its parts: first token and the one after the last."""

_GROUPS: dict[str, Callable[[str], bool]] = {
    "modifiers": lambda kind: kind.startswith(("AM-", "ARGM-")),
    "references": lambda kind: kind.startswith("R-"),
}
_NUMBERED = re.compile(r"A(RG)?[0-9A]")


def arguments(tags: Sequence[str]) -> set[Argument]:
    """Return the arguments of a predicate."""
    found: list[tuple[str, list[tuple[int, int]]]] = []
    latest: dict[str, list[tuple[int, int]]] = {}
    for first, after, label in extract_spans(tags):
        kind = label.removeprefix("C-")
        if kind != label and kind in latest:
            latest[kind].append((first, after))
        else:
            latest[kind] = [(first, after)]
            found.append((kind, latest[kind]))
    return {(kind, tuple(parts)) for kind, parts in found if kind != "V"}


def score(
    gold: Sequence[Sequence[Frame]], predicted: Sequence[Sequence[Mapping[str, Any]]]
) -> dict[str, float]:
    """Compare the frames of each sentence, in percent; 0 where nothing is to be counted.

    `f1`, `precision`, `recall` and what follows them by label (each numbered argument, all
    modifiers together, all references together) are with the true predicates given. `predicate_f1`
    is about which tokens are predicates; `end_to_end_f1` about arguments of predicates that had to
    be found, those of a wrong one counting as wrong.
    """
    roles = PrecisionRecallF1()
    for truth, guess in zip(gold, predicted, strict=True):
        given = {frame["predicate"]: frame["tags"] for frame in guess if frame["given"]}
        for frame in truth:
            roles.add(arguments(frame.tags), arguments(given[frame.predicate]))
    scores = roles.scores()
    for kind in filter(_NUMBERED.fullmatch, roles.types):
        scores[f"f1_{kind}"] = roles.f1(kind.__eq__)
    for name, chosen in _GROUPS.items():
        if any(map(chosen, roles.types)):
            scores[f"f1_{name}"] = roles.f1(chosen)
    return scores | score_found(gold, predicted)


def score_found(
    gold: Sequence[Sequence[Frame]], predicted: Sequence[Sequence[Mapping[str, Any]]]
) -> dict[str, float]:
    """Compare the frames of predicates that were found: the scores of text without any given."""
    whole, predicates = PrecisionRecallF1(), PrecisionRecallF1()
    for truth, guess in zip(gold, predicted, strict=True):
        found = {frame["predicate"]: frame["tags"] for frame in guess if frame["found"]}
        true = {frame.predicate: arguments(frame.tags) for frame in truth}
        whole.add(
            {(*item, predicate) for predicate, items in true.items() for item in items},
            {(*item, place) for place, tags in found.items() for item in arguments(tags)},
        )
        predicates.add({("V", place) for place in true}, {("V", place) for place in found})
    return {"predicate_f1": predicates.f1(), "end_to_end_f1": whole.f1()}
