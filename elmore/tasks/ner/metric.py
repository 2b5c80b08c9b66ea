"""Precision, recall and F1 over names, as conlleval counts them."""

from collections.abc import Sequence

from elmore.tasks.data.columns import pair_tags
from elmore.tasks.metrics.bio import extract_spans
from elmore.tasks.metrics.prf import PrecisionRecallF1


def score(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return f1, precision and recall in percent, and the f1 of each type as `f1_person`.

    A name is correct if its first token, its last token and its type are. A score is 0 if there
    is nothing to count.
    """
    names = count_names(gold, predicted)
    return names.scores() | {f"f1_{kind}": names.f1(kind.__eq__) for kind in names.types}


def count_names(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> PrecisionRecallF1:
    """Count the names of sentences."""
    items: tuple[list[tuple], list[tuple]] = [], []
    for number, pair in enumerate(pair_tags(gold, predicted)):
        for spans, tags in zip(items, pair, strict=True):
            spans += [(kind, number, *span) for *span, kind in extract_spans(tags)]
    names = PrecisionRecallF1()
    names.add(*items)
    return names
