"""Misspell words, and measure what a model still finds.

Every tenth, every third or every longer word is misspelt: one of four letters or more, and nothing
but letters. A misspelling swaps two neighbouring letters, drops one, doubles one or replaces one;
the first letter stays. It depends on the word and its place alone.

    sentences   the nearest text vector of 300 sentences is that of the sentence as it was written
    words       the nearest of all longer words in these sentences is the same word
    tags        a linear classifier, trained on text without errors

Shapes: N texts or tokens, L layers, D width.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from elmore.probe.cosine import normalize
from elmore.probe.estimates import estimate_ratio
from elmore.probe.linear_probe import Examples, Splits, fit_classifier, layer_features
from elmore.probe.suite.scores import Score
from elmore.probe.suite.tagging import TaggingTask
from elmore.tasks.data.columns import TaggedSentence

RATES = {"none": 0, "every tenth": 10, "every third": 3, "every": 1}
"""By name, the distance between two longer words that are misspelt."""
SHORTEST = 4  # letters of a longer word
SENTENCES = 300
WORDS = range(6, 41)  # of a sentence
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def misspell(word: str, seed: int) -> str:
    """Return a word with one error."""
    rng = random.Random(f"{word} {seed}")
    while True:
        place = rng.randrange(1, len(word) - 1)
        before, here, after = word[:place], word[place], word[place + 1 :]
        wrong = rng.choice(
            [
                before + after[0] + here + after[1:],
                before + after,
                before + 2 * here + after,
                before + rng.choice(LETTERS) + after,
            ]
        )
        if wrong != word:
            return wrong


def is_longer(word: str) -> bool:
    return len(word) >= SHORTEST and word.isalpha()


def misspell_sentences(sentences: Sequence[Sequence[str]], distance: int) -> list[list[str]]:
    """Return sentences in which every so many longer words are misspelt; 0 for none."""
    number = 0
    result = []
    for sentence in sentences:
        words = list(sentence)
        for place, word in enumerate(words):
            if is_longer(word):
                number += 1
                if distance and number % distance == 0:
                    words[place] = misspell(word, number)
        result.append(words)
    return result


def choose_sentences(sentences: Sequence[TaggedSentence]) -> list[list[str]]:
    """Return the first distinct sentences of a usual length."""
    distinct = dict.fromkeys(tuple(s.tokens) for s in sentences if len(s.tokens) in WORDS)
    return [list(tokens) for tokens in distinct][:SENTENCES]


def find_sentences(text_vectors: Any, sentences: list[list[str]]) -> Iterator[dict]:  # noqa: ANN401
    """Yield how often the nearest of the sentences is the right one, by method and rate."""
    versions = [misspell_sentences(sentences, distance) for distance in RATES.values()]
    texts = [" ".join(words) for version in versions for words in version]
    for method, vectors in text_vectors(texts).items():
        parts = np.split(normalize(vectors.astype(np.float32)), len(RATES))
        for rate, part in zip(RATES, parts, strict=True):
            found = (part @ parts[0].T).argmax(axis=1) == np.arange(len(part))
            yield {"rate": rate, **row(found, "found", method)}


def find_words(model: Any, sentences: list[list[str]]) -> Iterator[dict]:  # noqa: ANN401
    """Yield how often the nearest word of the text without errors is the word that was meant."""
    versions = [misspell_sentences(sentences, distance) for distance in RATES.values()]
    stream = model.stream((words for version in versions for words in version), layers="all")
    vectors = [np.concatenate([next(stream).vectors for _ in part], axis=1) for part in versions]
    clean, *noisy = [[word for words in version for word in words] for version in versions]
    longer = np.array([is_longer(word) for word in clean])
    meant = np.array([word.lower() for word in clean])
    layers = [*range(model.num_layers), *(["average"] if model.num_layers > 1 else [])]
    for layer in layers:
        units = [
            normalize((part.mean(axis=0) if layer == "average" else part[layer]).astype(np.float32))
            for part in vectors
        ]
        for rate, words, unit in zip(list(RATES)[1:], noisy, units[1:], strict=True):
            wrong = np.array([a != b for a, b in zip(clean, words, strict=True)])
            nearest = (unit[wrong] @ units[0][longer].T).argmax(axis=1)
            found = meant[longer][nearest] == meant[wrong]
            yield {"rate": rate, **row(found, "found", str(layer))}


def row(found: np.ndarray, metric: str, method: str) -> dict:
    return asdict(
        Score.from_estimate(estimate_ratio(found), metric=metric, method=method, chosen=False)
    )


def score_tags(models: Mapping[str, Any], tasks: Sequence[TaggingTask]) -> Iterator[dict]:
    """Yield the scores of each layer at each rate; the layer that is best on dev is chosen.

    Args:
        models: Versions of one model, by what is added to the names of their layers.
        tasks: Kinds of tags on the same sentences.
    """
    noisy = [_misspell_test(task.splits) for task in tasks]
    layers = {
        layer + version: vectors
        for version, model in models.items()
        for layer, vectors in _layers(noisy[0], model).items()
    }
    for task, splits in zip(tasks, noisy, strict=True):
        fits = {
            layer: fit_classifier(*map(Examples, vectors, splits.tags()))
            for layer, vectors in layers.items()
        }
        best = max(fits, key=lambda layer: fits[layer].dev)
        for layer, fit in fits.items():
            counts = list(_count(task, splits.test, fit.predicted))
            parts = np.split(np.array(counts), len(RATES))
            for rate, part in zip(RATES, parts, strict=True):
                score = Score.from_estimate(
                    estimate_ratio(*part.T),
                    part=task.part,
                    metric=task.metric,
                    method=layer,
                    chosen=layer == best,
                )
                yield {"rate": rate, "dev": fit.dev, **asdict(score)}


def _layers(splits: Splits, model: Any) -> dict[str, list[np.ndarray]]:  # noqa: ANN401
    """Return the vectors of every token in each layer, and the average if there are several."""
    layers = layer_features(splits, model)
    if model.num_layers == 1:
        layers.pop("average")
    return layers


def _misspell_test(splits: Splits) -> Splits:
    """Return splits whose test sentences are there at each rate, one rate after the other."""
    words = [sentence.tokens for sentence in splits.test]
    tests = [
        TaggedSentence(tokens, sentence.tags)
        for distance in RATES.values()
        for tokens, sentence in zip(misspell_sentences(words, distance), splits.test, strict=True)
    ]
    return Splits(splits.train, splits.dev, tests)


def _count(
    task: TaggingTask, sentences: Sequence[TaggedSentence], predicted: Sequence[str]
) -> Iterator[tuple[int, int]]:
    """Yield the numerator and denominator of the score of each sentence."""
    end = 0
    for sentence in sentences:
        begin, end = end, end + len(sentence.tags)
        yield task.counts(sentence.tags, predicted[begin:end])
