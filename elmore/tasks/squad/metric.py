"""F1 and exact match, as SQuAD's own script computes them (Rajpurkar et al., 2016).

Case, punctuation, articles and spaces are ignored. `exact_match` is the fraction of answers that
equal one of the gold answers; `f1` is the mean word overlap with the best gold answer. If nothing
is left of both texts, they match, as in the script for SQuAD 2.0.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def score(expected: Sequence[Sequence[str]], predicted: Sequence[str]) -> dict[str, float]:
    """Return f1 and exact_match in percent; 0 if there are no questions."""
    overlaps = hits = 0.0
    for answers, prediction in zip(expected, predicted, strict=True):
        overlaps += best_overlap(answers, prediction)
        hits += any(normalize(answer) == normalize(prediction) for answer in answers)
    count = max(1, len(predicted))
    return {"f1": 100 * overlaps / count, "exact_match": 100 * hits / count}


def best_overlap(answers: Sequence[str], prediction: str) -> float:
    """Return the overlap with the gold answer that it is most similar to."""
    return max(overlap(answer, prediction) for answer in answers)


def overlap(answer: str, prediction: str) -> float:
    """Return the F1 of the words of two texts, from 0 to 1."""
    true, guessed = normalize(answer).split(), normalize(prediction).split()
    if not true or not guessed:
        return float(true == guessed)
    shared = (Counter(true) & Counter(guessed)).total()
    return 2 * shared / (len(true) + len(guessed))


def normalize(text: str) -> str:
    """Remove what is ignored."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())
