"""Lexical substitution: words that may replace a word in context (Swords, SemEval-2007).

Ranking, where the candidates are given. A candidate is scored by its log-probability in the place
of the word (of its first word forward, of its last word backward, or by both directions together),
by the cosine of its vector with that of the word (the candidate is embedded alone, or in the place
of the word), or by both kinds as `lm.substitutes` ranks again. Metrics: generalized average
precision with the gold weights (`gap`), whether the first candidate is accepted (`p@1`), and F at
10 for the levels of a set.

Generation, where the words are those that `lm.substitutes` predicts: whether the first is accepted
that is no form of the word itself, up to regular inflection (`generated_p@1`).

Shapes: C candidates of a target, V words of the softmax, L layers and their average, D width.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from elmore.embed import networks
from elmore.embed.embedder import Embedder
from elmore.lm.joint_prediction import unigram_log_probs
from elmore.lm.substitutes import COSINE_FACTOR, Place, Substitutes, predict_at_places
from elmore.lm.substitution_vectors import Replacement, compare_replacements
from elmore.probe.cosine import normalize
from elmore.probe.estimates import estimate_ratio, f_counts, generalized_average_precision
from elmore.probe.suite.base_forms import base_forms
from elmore.probe.suite.embeddings import Tokens, embed_layers, layer_names
from elmore.probe.suite.scores import Progress, Score
from elmore.probe.suite.substitution_set import SubstitutionSet, Target
from elmore.probe.suite.word_probabilities import WordProbabilities
from elmore.weights.bundle import Bundle

_K = 10
_CHUNK = 64  # targets that are run together, and whose distributions over all words are held
_NUM_GENERATED = 20  # enough for one that is no form of the word

CandidateScores = dict[str, Float[np.ndarray, " C"]]
"""The scores of the candidates of a target by each method."""


class _Counts(NamedTuple):
    """A metric as numerators and denominators, one per target."""

    metric: str
    method: str
    columns: Sequence[Shaped[np.ndarray, " N"]]


def score_substitution(
    elmo: Embedder, data: SubstitutionSet, seed: int, progress: Progress
) -> list[Score]:
    """Score every method that the model has; without a softmax these are the cosines."""
    targets = [*data.dev, *data.test]
    tables = list(_score_candidates(elmo, targets, lambda done, n: progress(done / 2, n)))
    dev, test = tables[: len(data.dev)], tables[len(data.dev) :]
    best = max(dev[0], key=lambda method: np.mean(_precisions(_rank(data.dev, dev, method))))
    counts = [
        each for method in test[0] for each in _count(data, method, _rank(data.test, test, method))
    ]
    counts.sort(key=lambda each: each.metric != "gap")
    counts += _count_generated(elmo, data, lambda done, n: progress(0.5 + done / 2, n))
    return [
        Score.from_estimate(
            estimate_ratio(*columns, seed=seed), metric=metric, method=method, chosen=method == best
        )
        for metric, method, columns in counts
    ]


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


def _count(
    data: SubstitutionSet, method: str, ranked: Sequence[Float[np.ndarray, " C"]]
) -> Iterator[_Counts]:
    yield _Counts("gap", method, [_precisions(ranked)])
    yield _Counts("p@1", method, [np.array([w[0] >= data.accepted for w in ranked])])
    for name, least in data.levels.items():
        pairs = np.array([f_counts(weights >= least, _K) for weights in ranked])
        yield _Counts(f"f_{name}@{_K}", method, list(pairs.T))


def _score_candidates(
    elmo: Embedder, targets: Sequence[Target], progress: Progress
) -> Iterator[CandidateScores]:
    """Yield the scores of each target's candidates."""
    alone = _cosines_alone(elmo, targets)
    if elmo.bundle.softmax is None:
        yield from alone
        return
    rows = zip(_log_probs(elmo, targets), alone, _cosines_in_place(elmo, targets), strict=True)
    for number, (log_probs, similar, cosines) in enumerate(rows, start=1):
        in_place = dict(zip(layer_names(elmo), cosines, strict=True))
        yield (
            log_probs
            | similar
            | {f"in place {layer}": values for layer, values in in_place.items()}
            | {
                f"both + in place {layer}": log_probs["both"] + COSINE_FACTOR * values
                for layer, values in in_place.items()
            }
        )
        progress(number / len(targets), number)


def _cosines_alone(elmo: Embedder, targets: Sequence[Target]) -> list[CandidateScores]:
    """Return the cosine of each candidate, embedded alone, with the word, in each layer."""
    words: dict[Tokens, Float[np.ndarray, "L D"]] = {}
    distinct = dict.fromkeys(words for target in targets for words in target.candidates)
    for tokens, vectors in embed_layers(elmo, distinct):
        words[tokens] = normalize(vectors.mean(axis=1))
    in_context = dict(embed_layers(elmo, (target.sentence for target in targets)))
    tables = []
    for target in targets:
        word = normalize(in_context[target.sentence][:, target.position])  # (L, D)
        candidates = np.stack([words[tokens] for tokens in target.candidates])  # (C, L, D)
        cosines = (candidates * word).sum(axis=-1).T
        tables.append(dict(zip(layer_names(elmo), cosines, strict=True)))
    return tables


def _cosines_in_place(
    elmo: Embedder, targets: Sequence[Target]
) -> Iterator[Float[np.ndarray, "L C"]]:
    """Yield the cosines of each target's candidates in the place of the word, in each layer."""
    bundle = _inference_bundle(elmo)
    for first in range(0, len(targets), _CHUNK):
        chunk = [Replacement(*target[:3]) for target in targets[first : first + _CHUNK]]
        yield from compare_replacements(bundle, chunk)


def _inference_bundle(elmo: Embedder) -> Bundle:
    """Return the model in the precision of the embedder."""
    return replace(elmo.bundle, model=networks.with_precision(elmo.bundle.model, elmo.precision))


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
            yield _look_up(model, target, before, after)


def _look_up(
    model: WordProbabilities,
    target: Target,
    forward: Float[np.ndarray, " V"],
    backward: Float[np.ndarray, " V"],
) -> CandidateScores:
    """Return log-probabilities; a candidate that the softmax does not know gets the lowest."""
    first, last = (model.ids([words[end] for words in target.candidates]) for end in (0, -1))
    # By `joint_prediction`; of several words the mean of the unigrams
    priors = [unigram_log_probs(ids, len(forward)) for ids in (first, last)]
    values = {"forward": forward[first], "backward": backward[last]}
    values["both"] = values["forward"] + values["backward"] - np.mean(priors, axis=0)
    known = (first != model.unknown_id) & (last != model.unknown_id)
    return {
        name: np.where(known, each, each[known].min() if known.any() else 0.0)
        for name, each in values.items()
    }


def _count_generated(
    elmo: Embedder, data: SubstitutionSet, progress: Progress
) -> Iterator[_Counts]:
    """Yield whether the first word that each method generates is accepted."""
    if elmo.bundle.softmax is None:
        return
    bundle = _inference_bundle(elmo)
    correct = []
    for first in range(0, len(data.test), _CHUNK):
        chunk = data.test[first : first + _CHUNK]
        places = [Place(*target[:2]) for target in chunk]
        predicted = predict_at_places(bundle, places, count=_NUM_GENERATED, rerank=True)
        for target, found in zip(chunk, predicted, strict=True):
            correct.append(_first_is_accepted(target, found, data.accepted))
            progress(len(correct) / len(data.test), len(correct))
    for method in correct[0]:
        yield _Counts("generated_p@1", method, [np.array([each[method] for each in correct])])


def _first_is_accepted(target: Target, found: Substitutes, accepted: float) -> dict[str, bool]:
    gold = {
        " ".join(words)
        for words, weight in zip(target.candidates, target.weights, strict=True)
        if weight >= accepted
    }
    word = base_forms(target.sentence[target.position])
    lists = {
        "forward": found.forward,
        "backward": found.backward,
        "both": found.both,
        "both + in place 1": found.reranked or [],
    }
    result = {}
    for method, ranked in lists.items():
        others = (forms for text, _ in ranked if not (forms := base_forms(text)) & word)
        result[method] = bool(next(others, set()) & gold)
    return result
