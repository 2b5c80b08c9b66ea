"""MUC, B3, CEAFe, and the mean of their F1.

As in the reference scorer (Pradhan et al., 2014), counts are summed over documents, and mentions
that only one side has are not adjusted.

    MUC    links: a cluster of n mentions has n - 1 links, minus one for each further part that
           the other side's clusters split it into (Vilain et al., 1995)
    B3     mentions: the fraction of a mention's cluster that its cluster on the other side has
           (Bagga and Baldwin, 1998)
    CEAFe  clusters: the similarity 2 |K & R| / (|K| + |R|) under the best one-to-one alignment
           (Luo, 2005)
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from elmore.tasks.coref.assignment import maximize_assignment
from elmore.tasks.metrics import counts
from elmore.tasks.metrics.prf import percent

Clusters = Sequence[Sequence[Hashable]]


class Counted(NamedTuple):
    """Correct and total counts of gold and predicted items."""

    gold_correct: float = 0.0
    num_gold: float = 0.0
    predicted_correct: float = 0.0
    num_predicted: float = 0.0

    def plus(self, other: "Counted") -> "Counted":
        """Add the counts of another document."""
        return Counted(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def recall(self) -> float:
        """In percent; 0 if there is nothing."""
        return percent(self.gold_correct, self.num_gold)

    @property
    def precision(self) -> float:
        """In percent; 0 if there is nothing."""
        return percent(self.predicted_correct, self.num_predicted)

    @property
    def f1(self) -> float:
        """Return the harmonic mean of both."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


def score(gold: Iterable[Clusters], predicted: Iterable[Clusters]) -> dict[str, float]:
    """Return scores in percent.

    `average` is the mean F1 of `muc`, `b3` and `ceafe`; `mentions` scores the detection of
    mentions, whatever their cluster.
    """
    counters = {**_AVERAGED, "mentions": mentions}
    sums = dict.fromkeys(counters, Counted())
    for gold_clusters, predicted_clusters in zip(gold, predicted, strict=True):
        for name, counter in counters.items():
            sums[name] = sums[name].plus(counter(gold_clusters, predicted_clusters))
    scores = {"average": sum(sums[name].f1 for name in _AVERAGED) / len(_AVERAGED)}
    for name, counted in sums.items():
        scores[name] = counted.f1
        scores[f"{name}_precision"] = counted.precision
        scores[f"{name}_recall"] = counted.recall
    return scores


def muc(gold: Clusters, predicted: Clusters) -> Counted:
    """Count links."""
    return Counted(*_links(gold, predicted), *_links(predicted, gold))


def b3(gold: Clusters, predicted: Clusters) -> Counted:
    """Count mentions, each by the fraction of its cluster that is correct."""
    return Counted(*_overlaps(gold, predicted), *_overlaps(predicted, gold))


def ceafe(gold: Clusters, predicted: Clusters) -> Counted:
    """Count clusters, each by its similarity with the cluster it is aligned to."""
    overlaps = np.zeros((len(gold), len(predicted)))
    number = _numbers(predicted)
    for row, cluster in enumerate(gold):
        for mention in cluster:
            if mention in number:
                overlaps[row, number[mention]] += 1
    sizes = np.array([len(c) for c in gold])[:, None] + np.array([len(c) for c in predicted])
    similarity = 2 * overlaps / sizes
    total = float(sum(similarity[pair] for pair in maximize_assignment(similarity)))
    return Counted(total, len(gold), total, len(predicted))


def mentions(gold: Clusters, predicted: Clusters) -> Counted:
    """Count mentions that are in any cluster of both sides."""
    gold_mentions, predicted_mentions = set(_numbers(gold)), set(_numbers(predicted))
    both = len(gold_mentions & predicted_mentions)
    return Counted(both, len(gold_mentions), both, len(predicted_mentions))


_AVERAGED = {"muc": muc, "b3": b3, "ceafe": ceafe}


def count_averaged(gold: Clusters, predicted: Clusters) -> tuple[float, ...]:
    """Return the counts of a document behind `average`: four of each of its three metrics."""
    return tuple(
        float(number) for counter in _AVERAGED.values() for number in counter(gold, predicted)
    )


def average(sums: Float[np.ndarray, "R C"]) -> Float[np.ndarray, " R"]:
    """Return `average` for sums of `count_averaged`."""
    scores = []
    for part in np.split(sums, len(_AVERAGED), axis=1):
        recall, precision = counts.ratio(part[:, :2]), counts.ratio(part[:, 2:])
        scores.append(2 * precision * recall / np.maximum(precision + recall, 1e-9))
    return np.mean(scores, axis=0)


def _numbers(clusters: Clusters) -> dict[Hashable, int]:
    return {mention: number for number, cluster in enumerate(clusters) for mention in cluster}


def _links(clusters: Clusters, others: Clusters) -> tuple[int, int]:
    """Return the number of links that the other side has, and of all links."""
    number = _numbers(others)
    right = total = 0
    for cluster in clusters:
        pieces = {number[mention] for mention in cluster if mention in number}
        alone = sum(mention not in number for mention in cluster)
        right += len(cluster) - len(pieces) - alone
        total += len(cluster) - 1
    return right, total


def _overlaps(clusters: Clusters, others: Clusters) -> tuple[float, int]:
    """Return the summed fractions of mentions, and the number of mentions."""
    number = _numbers(others)
    right, total = 0.0, 0
    for cluster in clusters:
        together = Counter(number[mention] for mention in cluster if mention in number)
        right += sum(count * count for count in together.values()) / len(cluster)
        total += len(cluster)
    return right, total
