"""How many names were found: precision, recall and F1 over names, as conlleval counts them."""

from collections import Counter
from collections.abc import Sequence

from elmore.tasks.bio import spans
from elmore.tasks.tagged import paired


def score(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Give f1, precision and recall in percent, and the f1 of each type as `f1_person`.

    A name counts when its first token, its last and its type are all right. Where nothing is there
    to be counted, the score is 0.
    """
    true: Counter[str] = Counter()
    guessed: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for truth, guess in paired(gold, predicted):
        names, found = set(spans(truth)), set(spans(guess))
        for counter, counted in ((true, names), (guessed, found), (right, names & found)):
            counter.update(kind for _, _, kind in counted)
    hits = right.total()
    scores = {
        "f1": _f1(hits, guessed.total(), true.total()),
        "precision": _percent(hits, guessed.total()),
        "recall": _percent(hits, true.total()),
    }
    for kind in sorted(true | guessed):
        scores[f"f1_{kind}"] = _f1(right[kind], guessed[kind], true[kind])
    return scores


def _f1(right: int, guessed: int, true: int) -> float:
    """Give the harmonic mean of right/guessed and right/true."""
    return _percent(2 * right, guessed + true)


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0
