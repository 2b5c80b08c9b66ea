"""Word-sense disambiguation by nearest neighbour (Peters et al., 2018, section 5.3).

The vectors of all annotated instances of a sense are averaged. A new instance gets the sense of its
lemma whose average has the highest cosine with it. A lemma that is not in the annotated text gets
its first sense in WordNet, or no answer: both variants are scored.

Besides each layer, the table has `average`, the mean of the layers, and `1+2`, the sum of the LSTM
layers after each is scaled to unit length, so that the longer one does not dominate. Each row also
exists `centred`, with the mean of all annotated instances subtracted: the vectors of a biLM share a
few large components, which make all of them similar and hide the differences.

The rows `cloze` (what is around the word, without the word) and `whitened` (the whitening of the
model) are not the paper's: they never are the chosen row, and their scores include the gain over
the top layer with its paired interval.

Shapes: L layers, R vectors per instance, S senses, N instances, T words, D width.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from elmore.embed.embedder import Embedder
from elmore.embed.outputs import parse_layers
from elmore.errors import ConfigError, DataError
from elmore.probe.cosine import normalize
from elmore.probe.sense_corpus import Instance, SenseCorpus, Sentence
from elmore.probe.sense_scores import Scores, score_gain, score_senses
from elmore.probe.wordnet import WordNet
from elmore.tasks.embedding.word_vectors import WordVectors

FIRST_SENSE = "first sense"
CENTRED = " centred"
BEYOND_PAPER = ("cloze", "whitened")
"""Rows of vectors that the paper does not have."""

Progress = Callable[[float, int], None]
"""Called with the fraction done, 0 to 1, and the number of words read."""

_TIE = 1e-5  # cosines closer than this differ by rounding: the first sense in WordNet wins


@dataclass(frozen=True)
class SenseResults:
    """The scores of each row: a layer, or a combination of layers.

    `f1` and the other scores of `sense_scores` fall back on the first sense; `alone_f1` and so on
    do not.
    """

    chosen: str | None
    """The best of the paper's rows on the held-out documents; None if nothing was held out."""
    held_out: dict[str, Scores]
    """Scores on held-out training documents, learned from the others."""
    tests: dict[str, dict[str, Scores]]
    """Scores on each test set, learned from all training documents."""
    num_uses: int
    num_senses: int
    punctuation: Literal["treebank", "plain"] = "treebank"
    """The quotes and brackets of the corpora as given (`` '' -LRB-, in old results), or plain."""

    def __post_init__(self) -> None:
        for table in (self.held_out, *self.tests.values()):
            for layer, scores in table.items():
                if not {"f1", "f1_low", "f1_high"} <= set(scores):
                    raise ConfigError(f"{layer!r}: expected scores with f1, f1_low and f1_high")


def probe_senses(
    source: Embedder | WordVectors,
    train: SenseCorpus,
    tests: Sequence[SenseCorpus],
    wordnet: WordNet,
    *,
    held_out: float = 0.1,
    seed: int = 0,
    name: str = "words",
    progress: Progress | None = None,
) -> SenseResults:
    """Learn sense averages from one corpus, and score each layer on others.

    `held_out` is the fraction of the training documents that chooses the best row, `name` the row
    of word vectors. The training corpus is embedded once; only one sum per sense and the vectors of
    the held-out instances are kept.
    """
    if not 0 <= held_out < 1:
        raise ConfigError(f"held_out must be at least 0 and below 1, found {held_out}")
    names = [test.name for test in tests]
    if len(set(names)) < len(names):
        raise ConfigError(f"test sets must have different names, found {', '.join(names)}")
    survey = _survey(train)
    held_out_documents = _sample_documents(survey.documents, held_out, seed)
    num_words = survey.num_words + sum(_survey(test).num_words for test in tests)
    layers = _Layers(source, name, _ProgressCounter(progress, num_words))

    averages, held_out_sums = (_SenseSums(survey.senses, layers) for _ in range(2))
    dev = _Instances()
    for document, instance, vectors in layers.instances(train):
        if document in held_out_documents:
            held_out_sums.add(instance, vectors)
            dev.add(instance, vectors.astype(np.float16))
        else:
            averages.add(instance, vectors)
    chosen, dev_scores = None, {}
    if held_out_documents:
        dev_scores = _score_rows(layers, averages, dev, wordnet, seed)
        rows = [row for row in dev_scores if row != FIRST_SENSE and not is_beyond_paper(row)]
        chosen = max(rows, key=lambda row: dev_scores[row]["f1"])
        averages.merge(held_out_sums)
    test_scores = {}
    for test in tests:
        instances = _Instances()
        for _, instance, vectors in layers.instances(test):
            instances.add(instance, vectors)
        test_scores[test.name] = _score_rows(layers, averages, instances, wordnet, seed)
    return SenseResults(
        chosen,
        dev_scores,
        test_scores,
        survey.num_instances,
        len(survey.senses),
        punctuation="plain",
    )


def is_beyond_paper(row: str) -> bool:
    """Return whether the paper has no such row, centred or not."""
    return row.removesuffix(CENTRED) in BEYOND_PAPER


class _Survey(NamedTuple):
    documents: list[str]
    senses: dict[tuple[str, str, str], int]
    """An id for each lemma, part of speech and key."""
    num_instances: int
    num_words: int


def _survey(corpus: SenseCorpus) -> _Survey:
    """Read a corpus once, so that errors in it appear before the model runs for long."""
    documents: dict[str, None] = {}
    senses: dict[tuple[str, str, str], int] = {}
    num_instances = num_words = 0
    for sentence in corpus:
        documents[sentence.document] = None
        num_instances += len(sentence.instances)
        num_words += len(sentence.words)
        for instance in sentence.instances:
            for key in instance.keys:
                senses.setdefault((instance.lemma, instance.pos, key), len(senses))
    if not num_instances:
        raise DataError(f"{corpus.path}: holds no annotated instance")
    return _Survey(list(documents), senses, num_instances, num_words)


def _sample_documents(documents: list[str], fraction: float, seed: int) -> set[str]:
    """Draw whole documents to hold out, because sentences of one document are similar."""
    if not fraction:
        return set()
    if len(documents) < 2:
        raise ConfigError("one document cannot be split to hold out a part; pass --held-out 0")
    number = min(max(1, round(fraction * len(documents))), len(documents) - 1)
    order = np.random.default_rng(seed).permutation(len(documents))
    return {documents[position] for position in order[:number]}


class _ProgressCounter:
    """Count words and report progress."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def add(self, num_words: int) -> None:
        self._done += num_words
        if self._progress:
            self._progress(self._done / self._total, self._done)


class _Layers:
    """The source of vectors, and the rows of the table.

    An instance has R vectors: its layers, those that the paper does not have, and, if there are
    several LSTM layers, the sum of their unit vectors. `rows` maps the name of a row to its weights
    over these R vectors.
    """

    def __init__(
        self, source: Embedder | WordVectors, name: str, counter: _ProgressCounter
    ) -> None:
        self._source, self._counter = source, counter
        if isinstance(source, WordVectors):
            self.width, names, beyond = source.dim, [name], []
        else:
            self.width, names = source.width, [str(layer) for layer in range(source.num_layers)]
            beyond = [*BEYOND_PAPER] if source.whitening else ["cloze"]
            self._choices = [parse_layers(one) for one in (*names, *beyond)]
        self._num_layers = num_layers = len(names)
        self._add_unit_sum = num_layers > 2
        units = ["+".join(names[1:])] if self._add_unit_sum else []
        self.num_sums = len(names) + len(beyond) + len(units)
        unit_rows = np.eye(self.num_sums, dtype=np.float32)
        rows = dict(zip([*names, *beyond, *units], unit_rows, strict=True))
        if num_layers > 1:
            of_layers = np.arange(self.num_sums) < num_layers
            rows["average"] = (of_layers / num_layers).astype(np.float32)
        self.rows = {row: rows[row] for row in sorted(rows, key=is_beyond_paper)}
        self.top = names[-1]

    def instances(
        self, corpus: SenseCorpus
    ) -> Iterator[tuple[str, Instance, Float[np.ndarray, "R D"]]]:
        """Yield each instance with its document and vectors, averaged over its words."""
        for sentence, layers in self._stream(corpus):
            for instance in sentence.instances:
                vectors = layers[:, instance.start : instance.end].mean(axis=1)
                if self._add_unit_sum:
                    units = normalize(vectors[1 : self._num_layers])
                    vectors = np.concatenate([vectors, units.sum(axis=0)[None]])
                yield sentence.document, instance, vectors
            self._counter.add(len(sentence.words))

    def _stream(self, corpus: SenseCorpus) -> Iterator[tuple[Sentence, Float[np.ndarray, "L T D"]]]:
        if isinstance(self._source, WordVectors):
            for sentence in corpus:
                yield sentence, self._source.lookup(sentence.words)[None]
            return
        here, there = itertools.tee(corpus)  # which holds as many sentences as the embedder does
        results = self._source.stream((sentence.words for sentence in there), layers=self._choices)
        for sentence, embedded in zip(here, results, strict=True):
            yield sentence, embedded.vectors


class _SenseSums:
    """The sum of the vectors of each sense, and their number."""

    def __init__(self, senses: dict[tuple[str, str, str], int], layers: _Layers) -> None:
        self.senses = senses
        self.counts = np.zeros(len(senses), dtype=np.int64)
        # Untouched pages of zeros use no memory: few senses occur in the held-out documents.
        self.vectors = np.zeros((len(senses), layers.num_sums, layers.width), dtype=np.float32)

    def add(self, instance: Instance, vectors: Float[np.ndarray, "R D"]) -> None:
        """Add an instance to each of its senses."""
        for key in instance.keys:
            number = self.senses[instance.lemma, instance.pos, key]
            self.vectors[number] += vectors
            self.counts[number] += 1

    def merge(self, other: "_SenseSums") -> None:
        """Add the sums of another."""
        (senses,) = other.counts.nonzero()
        self.vectors[senses] += other.vectors[senses]
        self.counts += other.counts

    def candidates(self, wordnet: WordNet) -> dict[tuple[str, str], list[tuple[str, int]]]:
        """Return the observed senses of each lemma, in WordNet order."""
        candidates: dict[tuple[str, str], list[tuple[str, int]]] = {}
        for (lemma, pos, key), number in self.senses.items():
            if self.counts[number]:
                candidates.setdefault((lemma, pos), []).append((key, number))
        for lemma, senses in candidates.items():
            rank = {key: rank for rank, key in enumerate(wordnet.senses(*lemma))}
            senses.sort(key=lambda sense: rank.get(sense[0], len(rank)))
        return candidates


class _Instances:
    """Instances to disambiguate, with their vectors."""

    def __init__(self) -> None:
        self.instances: list[Instance] = []
        self.vectors: list[Shaped[np.ndarray, "R D"]] = []

    def add(self, instance: Instance, vectors: Shaped[np.ndarray, "R D"]) -> None:
        self.instances.append(instance)
        self.vectors.append(vectors)


def _score_rows(
    layers: _Layers, sums: _SenseSums, test: _Instances, wordnet: WordNet, seed: int
) -> dict[str, Scores]:
    """Score the first sense, each row, and each row centred."""
    firsts = [wordnet.first_sense(one.lemma, one.pos) for one in test.instances]
    table = {FIRST_SENSE: score_senses(test.instances, firsts, seed=seed)}
    candidates = sums.candidates(wordnet)
    answers_of: dict[str, list[str | None]] = {}
    for row, weights in layers.rows.items():
        totals = np.einsum("r,srd->sd", weights, sums.vectors)
        averages = totals / np.maximum(1, sums.counts)[:, None]
        vectors = np.stack([weights @ one.astype(np.float32) for one in test.vectors])  # (N, D)
        for suffix, centre in (("", 0.0), (CENTRED, totals.sum(axis=0) / sums.counts.sum())):
            answers = _nearest_senses(
                normalize(averages - centre), normalize(vectors - centre), test, candidates
            )
            with_fallback = [answer or first for answer, first in zip(answers, firsts, strict=True)]
            alone = score_senses(test.instances, answers, seed=seed)
            table[row + suffix] = score_senses(test.instances, with_fallback, seed=seed) | {
                f"alone_{name}": value for name, value in alone.items()
            }
            answers_of[row + suffix] = with_fallback
    for row in filter(is_beyond_paper, answers_of):
        pair = answers_of[row], answers_of[layers.top]
        table[row] |= score_gain(test.instances, *pair, seed=seed)
    return table


def _nearest_senses(
    averages: Float[np.ndarray, "S D"],
    vectors: Float[np.ndarray, "N D"],
    test: _Instances,
    candidates: dict[tuple[str, str], list[tuple[str, int]]],
) -> list[str | None]:
    """Return the sense with the nearest average per instance; None for an unseen lemma."""
    answers: list[str | None] = [None] * len(test.instances)
    rows_of: dict[tuple[str, str], list[int]] = {}
    for row, instance in enumerate(test.instances):
        rows_of.setdefault((instance.lemma, instance.pos), []).append(row)
    for lemma in rows_of.keys() & candidates.keys():
        keys, numbers = zip(*candidates[lemma], strict=True)
        cosines = vectors[rows_of[lemma]] @ averages[list(numbers)].T
        best = (cosines >= cosines.max(axis=1, keepdims=True) - _TIE).argmax(axis=1)
        for row, sense in zip(rows_of[lemma], best, strict=True):
            answers[row] = keys[sense]
    return answers
