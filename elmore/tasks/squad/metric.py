"""Right answers to questions, as SQuAD's own script counts them (Rajpurkar et al., 2016).

Case, punctuation, articles and spaces do not count. `exact_match` is the share of answers that are
then one of the expected; `f1` is the mean overlap in words, each time with the nearest of these.
Where nothing is left of both texts the overlap is whole, as in the script for SQuAD 2.0.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def score(expected: Sequence[Sequence[str]], found: Sequence[str]) -> dict[str, float]:
    """Return f1 and exact_match in percent, for each question's expected answers and the one found.

    They are 0 where there is no question.
    """
    overlaps = hits = 0.0
    for answers, guess in zip(expected, found, strict=True):
        overlaps += max(overlap(answer, guess) for answer in answers)
        hits += any(normalized(answer) == normalized(guess) for answer in answers)
    count = max(1, len(found))
    return {"f1": 100 * overlaps / count, "exact_match": 100 * hits / count}


def overlap(answer: str, guess: str) -> float:
    """Return the F1 of the words of two texts, from 0 to 1."""
    true, guessed = normalized(answer).split(), normalized(guess).split()
    if not true or not guessed:
        return float(true == guessed)
    shared = (Counter(true) & Counter(guessed)).total()
    return 2 * shared / (len(true) + len(guessed))


def normalized(text: str) -> str:
    """Leave out what does not count."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())
