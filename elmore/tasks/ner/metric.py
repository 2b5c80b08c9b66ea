"""How many names were found: precision, recall and F1 over names, as conlleval counts them."""

from collections.abc import Sequence

from elmore.tasks.data.columns import paired
from elmore.tasks.metrics.bio import spans
from elmore.tasks.metrics.prf import Tally


def score(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Give f1, precision and recall in percent, and the f1 of each type as `f1_person`.

    A name counts when its first token, its last and its type are all right. Where nothing is there
    to be counted, the score is 0.
    """
    names = Tally()
    for truth, guess in paired(gold, predicted):
        names.add(*([(kind, *place) for *place, kind in spans(tags)] for tags in (truth, guess)))
    return names.scores() | {f"f1_{kind}": names.f1(kind.__eq__) for kind in names.kinds}
