"""Swords: rank the candidates that may replace a word in context (Lee et al., 2021).

This is the benchmark's ranking setting: the candidates are given. A candidate is scored by its
log-probability in place of the word (of its first word forward, of its last word backward, or the
sum of both), by the cosine of its vector with that of the word (the candidate is embedded alone,
the word in its sentence), or by the sum of the two, each standardized over the candidates.

The gold weight of a candidate is the fraction of annotators that accept it. Metrics: generalized
average precision of the ranking (`gap_rat` of the benchmark), and F at 10 against the acceptable
candidates (weight above 0.5) and the conceivable ones (0.1 or more).

Shapes: C candidates of a target, L layers and their average, D width.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float

from elmore.embed.embedder import Embedder
from elmore.probe.cosine import normalize
from elmore.probe.estimates import estimate_ratio, f_counts, generalized_average_precision
from elmore.probe.suite.embeddings import Tokens, embed_layers, layer_names
from elmore.probe.suite.scores import Progress, Score
from elmore.probe.suite.swords_data import Swords, Target
from elmore.probe.suite.word_probabilities import WordProbabilities

_ACCEPTABLE, _CONCEIVABLE = 0.5 + 1e-4, 0.1  # as in the benchmark
_K = 10
_CHUNK = 64  # targets, whose distributions over all words are held at a time

CandidateScores = dict[str, Float[np.ndarray, " C"]]
"""The scores of the candidates of a target by each method."""


def score_swords(elmo: Embedder, data: Swords, seed: int, progress: Progress) -> list[Score]:
    """Score every method that the model has; without a softmax these are the cosines."""
    targets = [*data.dev, *data.test]
    tables = list(_score_candidates(elmo, targets, progress))
    dev, test = tables[: len(data.dev)], tables[len(data.dev) :]
    best = max(dev[0], key=lambda method: np.mean(_precisions(_rank(data.dev, dev, method))))
    scores = []
    for method in dev[0]:
        ranked = _rank(data.test, test, method)
        columns = {"gap": [_precisions(ranked)]} | {
            f"f_{name}@{_K}": np.array([f_counts(weights >= least, _K) for weights in ranked]).T
            for name, least in (("acceptable", _ACCEPTABLE), ("conceivable", _CONCEIVABLE))
        }
        scores += [
            Score.from_estimate(
                estimate_ratio(*column, seed=seed),
                metric=metric,
                method=method,
                chosen=method == best,
            )
            for metric, column in columns.items()
        ]
    return sorted(scores, key=lambda score: score.metric != "gap")


def _rank(
    targets: Sequence[Target], tables: Sequence[CandidateScores], method: str
) -> list[Float[np.ndarray, " C"]]:
    """Return the gold weights of the candidates of each target, best scored first."""
    return [
        target.weights[np.argsort(-table[method], kind="stable")]
        for target, table in zip(targets, tables, strict=True)
    ]


def _precisions(ranked: Sequence[Float[np.ndarray, " C"]]) -> Float[np.ndarray, " N"]:
    return np.array([generalized_average_precision(weights) for weights in ranked])


def _score_candidates(
    elmo: Embedder, targets: Sequence[Target], progress: Progress
) -> Iterator[CandidateScores]:
    """Yield the scores of each target's candidates."""
    cosines = _cosines(elmo, targets, progress)
    if elmo.bundle.softmax is None:
        yield from cosines
        return
    for log_probs, similar in zip(_log_probs(elmo, targets), cosines, strict=True):
        together = {
            f"both + {layer}": _standardize(log_probs["both"]) + _standardize(values)
            for layer, values in similar.items()
        }
        yield log_probs | similar | together


def _standardize(values: Float[np.ndarray, " C"]) -> Float[np.ndarray, " C"]:
    deviation = values.std()
    return (values - values.mean()) / (deviation if deviation > 0 else 1)


def _cosines(
    elmo: Embedder, targets: Sequence[Target], progress: Progress
) -> list[CandidateScores]:
    """Return the cosine of each candidate with the word, in each layer."""
    words: dict[Tokens, Float[np.ndarray, "L D"]] = {}
    alone = dict.fromkeys(words for target in targets for words in target.candidates)
    for tokens, vectors in embed_layers(elmo, alone, progress):
        words[tokens] = normalize(vectors.mean(axis=1))
    in_context = dict(embed_layers(elmo, (target.sentence for target in targets)))
    tables = []
    for target in targets:
        word = normalize(in_context[target.sentence][:, target.position])  # (L, D)
        candidates = np.stack([words[tokens] for tokens in target.candidates])  # (C, L, D)
        cosines = (candidates * word).sum(axis=-1).T
        tables.append(dict(zip(layer_names(elmo), cosines, strict=True)))
    return tables


def _log_probs(elmo: Embedder, targets: Sequence[Target]) -> Iterator[CandidateScores]:
    """Yield the log-probabilities of each candidate in the place of the word."""
    model = WordProbabilities(elmo)
    states = model.stream_states(target.sentence for target in targets)
    for first in range(0, len(targets), _CHUNK):
        chunk = targets[first : first + _CHUNK]
        rows = [[side[target.position] for side in next(states)] for target in chunk]
        forward, backward = (
            model.all_log_probs(np.stack(side)) for side in zip(*rows, strict=True)
        )
        for target, before, after in zip(chunk, forward, backward, strict=True):
            sides = {
                "forward": _look_up(model, before, [words[0] for words in target.candidates]),
                "backward": _look_up(model, after, [words[-1] for words in target.candidates]),
            }
            yield sides | {"both": sides["forward"] + sides["backward"]}


def _look_up(
    model: WordProbabilities, log_probs: Float[np.ndarray, " V"], words: list[str]
) -> Float[np.ndarray, " C"]:
    """Return the log-probabilities of words; one the softmax does not know gets the lowest."""
    ids = model.ids(words)
    values, known = log_probs[ids], ids != model.unknown_id
    lowest = values[known].min(initial=np.inf)
    return np.where(known, values, lowest if known.any() else 0.0)
