"""Precision, recall and F1 over arguments, as the scorer of CoNLL-2005 (srl-eval) counts them.

An argument is correct if its label and all its parts are: a C-A1 continues the last A1 before it,
and both together are one argument. A C-A1 that continues nothing is an A1, an R-A1 is an argument
of its own, and V, the predicate, is not an argument.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elmore.tasks.metrics.bio import extract_spans
from elmore.tasks.metrics.prf import PrecisionRecallF1
from elmore.tasks.srl.data import Frame

Argument = tuple[str, tuple[tuple[int, int], ...]]
"""A label and its parts: first token and the token after the last."""

_GROUPS: dict[str, Callable[[str], bool]] = {
    "modifiers": lambda kind: kind.startswith(("AM-", "ARGM-")),
    "references": lambda kind: kind.startswith("R-"),
}
_NUMBERED = re.compile(r"A(RG)?[0-9A]")


def extract_arguments(tags: Sequence[str]) -> set[Argument]:
    """Return the arguments of a predicate from its BIO tags."""
    arguments: list[tuple[str, list[tuple[int, int]]]] = []
    latest: dict[str, list[tuple[int, int]]] = {}
    for first, after, label in extract_spans(tags):
        kind = label.removeprefix("C-")
        if kind != label and kind in latest:
            latest[kind].append((first, after))
        else:
            latest[kind] = [(first, after)]
            arguments.append((kind, latest[kind]))
    return {(kind, tuple(parts)) for kind, parts in arguments if kind != "V"}


def score(
    gold: Sequence[Sequence[Frame]], predicted: Sequence[Sequence[Mapping[str, Any]]]
) -> dict[str, float]:
    """Return scores in percent; 0 if there is nothing to count.

    `f1`, `precision`, `recall` and the f1 by label (each numbered argument, all modifiers, all
    references) are for given gold predicates. `predicate_f1` is about which tokens are predicates;
    `end_to_end_f1` is about the arguments of predicted predicates, where those of a wrong predicate
    are wrong.
    """
    roles = count_arguments(gold, predicted)
    scores = roles.scores()
    for kind in filter(_NUMBERED.fullmatch, roles.types):
        scores[f"f1_{kind}"] = roles.f1(kind.__eq__)
    for name, chosen in _GROUPS.items():
        if any(map(chosen, roles.types)):
            scores[f"f1_{name}"] = roles.f1(chosen)
    return scores | score_end_to_end(gold, predicted)


def count_arguments(
    gold: Sequence[Sequence[Frame]], predicted: Sequence[Sequence[Mapping[str, Any]]]
) -> PrecisionRecallF1:
    """Count the arguments of given gold predicates."""
    roles = PrecisionRecallF1()
    for gold_frames, predicted_frames in zip(gold, predicted, strict=True):
        tags_by_predicate = {
            frame["predicate"]: frame["tags"] for frame in predicted_frames if frame["given"]
        }
        for frame in gold_frames:
            roles.add(
                extract_arguments(frame.tags), extract_arguments(tags_by_predicate[frame.predicate])
            )
    return roles


def score_end_to_end(
    gold: Sequence[Sequence[Frame]], predicted: Sequence[Sequence[Mapping[str, Any]]]
) -> dict[str, float]:
    """Score frames of predicted predicates, as for text without gold predicates."""
    arguments, predicates = PrecisionRecallF1(), PrecisionRecallF1()
    for gold_frames, predicted_frames in zip(gold, predicted, strict=True):
        predicted_tags = {
            frame["predicate"]: frame["tags"] for frame in predicted_frames if frame["found"]
        }
        gold_arguments = {frame.predicate: extract_arguments(frame.tags) for frame in gold_frames}
        arguments.add(
            {(*item, predicate) for predicate, items in gold_arguments.items() for item in items},
            {
                (*item, index)
                for index, tags in predicted_tags.items()
                for item in extract_arguments(tags)
            },
        )
        predicates.add(
            {("V", index) for index in gold_arguments}, {("V", index) for index in predicted_tags}
        )
    return {"predicate_f1": predicates.f1(), "end_to_end_f1": arguments.f1()}
