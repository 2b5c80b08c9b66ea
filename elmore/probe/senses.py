"""Word senses by nearest neighbour (Peters et al., 2018, section 5.3).

The vectors of all uses of a sense in annotated text are averaged; a new use gets the sense of its
lemma whose average has the highest cosine with it. A lemma that the annotated text does not hold
gets the first sense of WordNet, or no answer: both are scored.

Besides each layer there are `average`, the mean of the layers, and `1+2`, the sum of the LSTM's
layers after each is scaled to length one, so that the longer does not outweigh the other. Each also
stands there `centred`: less the mean of all annotated uses. Vectors of a biLM share a few large
directions, which make all of them alike and hide what differs.

Shapes: L layers, R sums kept per sense, S senses, N uses, T words, D width.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from elmore.embed.embedder import Embedder
from elmore.errors import ConfigError, DataError
from elmore.probe.cosine import unit
from elmore.probe.sense_data import Instance, SenseCorpus, Sentence
from elmore.probe.sense_scores import Scores, score
from elmore.probe.wordnet import WordNet
from elmore.tasks.embedding.word_vectors import WordVectors

FIRST_SENSE = "first sense"
CENTRED = " centred"

Progress = Callable[[float, int], None]
"""What is done, 0 to 1, and how many words that was."""

_SAME = 1e-5  # cosines nearer than this are rounding: the sense that WordNet lists first is taken


@dataclass(frozen=True)
class Senses:
    """What the probe found: for each row (a layer or a mix of them) its scores.

    `f1` and the other scores of `sense_scores` are with the first sense as fallback, `alone_f1` and
    so on without it.
    """

    chosen: str | None
    """The row that is best on the held-out documents; None where nothing was held out."""
    held_out: dict[str, Scores]
    """Of documents of the training text, learned from the others."""
    tests: dict[str, dict[str, Scores]]
    """Of each test set, learned from all documents."""
    num_uses: int
    num_senses: int


def probe(
    source: Embedder | WordVectors,
    train: SenseCorpus,
    tests: Sequence[SenseCorpus],
    wordnet: WordNet,
    *,
    held_out: float = 0.1,
    seed: int = 0,
    name: str = "words",
    progress: Progress | None = None,
) -> Senses:
    """Learn senses from one text, and score what each layer tells about others.

    `held_out` of the training documents choose the best row. One pass is made over the training
    text, and what it keeps is a sum per sense and the vectors of the held-out uses. `name` is that
    of the only layer of word vectors.
    """
    if not 0 <= held_out < 1:
        raise ConfigError(f"held_out must be at least 0 and below 1, found {held_out}")
    names = [test.name for test in tests]
    if len(set(names)) < len(names):
        raise ConfigError(f"test sets must have names of their own, found {', '.join(names)}")
    survey = _survey(train)
    apart = _drawn(survey.documents, held_out, seed)
    num_words = survey.num_words + sum(_survey(test).num_words for test in tests)
    layers = _Layers(source, name, _Watch(progress, num_words))

    rest, held = (_Sums(survey.senses, layers) for _ in range(2))
    kept = _Uses()
    for document, use, vectors in layers.uses(train):
        if document in apart:
            held.add(use, vectors)
            kept.add(use, vectors.astype(np.float16))
        else:
            rest.add(use, vectors)
    chosen, apart_scores = None, {}
    if apart:
        apart_scores = _table(layers.rows, rest, kept, wordnet, seed)
        rows = [row for row in apart_scores if row != FIRST_SENSE]
        chosen = max(rows, key=lambda row: apart_scores[row]["f1"])
        rest.merge(held)
    found = {}
    for test in tests:
        uses = _Uses()
        for _, use, vectors in layers.uses(test):
            uses.add(use, vectors)
        found[test.name] = _table(layers.rows, rest, uses, wordnet, seed)
    return Senses(chosen, apart_scores, found, survey.num_uses, len(survey.senses))


class _Survey(NamedTuple):
    documents: list[str]
    senses: dict[tuple[str, str, str], int]
    """A number for each lemma, part of speech and key."""
    num_uses: int
    num_words: int


def _survey(corpus: SenseCorpus) -> _Survey:
    """Read a corpus once, so that what is wrong with it is said before a model runs for long."""
    documents: dict[str, None] = {}
    senses: dict[tuple[str, str, str], int] = {}
    num_uses = num_words = 0
    for sentence in corpus:
        documents[sentence.document] = None
        num_uses += len(sentence.instances)
        num_words += len(sentence.words)
        for use in sentence.instances:
            for key in use.keys:
                senses.setdefault((use.lemma, use.pos, key), len(senses))
    if not num_uses:
        raise DataError(f"{corpus.path}: holds no annotated instance")
    return _Survey(list(documents), senses, num_uses, num_words)


def _drawn(documents: list[str], share: float, seed: int) -> set[str]:
    """Draw the documents to hold out: whole ones, for sentences of one document are alike."""
    if not share:
        return set()
    if len(documents) < 2:
        raise ConfigError("one document cannot be split to hold out a part; pass --held-out 0")
    number = min(max(1, round(share * len(documents))), len(documents) - 1)
    order = np.random.default_rng(seed).permutation(len(documents))
    return {documents[place] for place in order[:number]}


class _Watch:
    """Counts words for whoever watches."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def add(self, num_words: int) -> None:
        self._done += num_words
        if self._progress:
            self._progress(self._done / self._total, self._done)


class _Layers:
    """Where vectors come from, and which rows the table has.

    `rows` has for each row its shares of the R vectors per use: the layers, and where the model has
    several LSTM layers their sum at equal length.
    """

    def __init__(self, source: Embedder | WordVectors, name: str, watch: _Watch) -> None:
        self._source, self._watch = source, watch
        if isinstance(source, WordVectors):
            self.width, names = source.dim, [name]
        else:
            self.width, names = source.width, [str(layer) for layer in range(source.num_layers)]
        num_layers = len(names)
        self._even = num_layers > 2
        if self._even:
            names = [*names, "+".join(names[1:])]
        self.num_sums = len(names)
        self.rows = dict(zip(names, np.eye(len(names), dtype=np.float32), strict=True))
        if num_layers > 1:
            of_layers = np.arange(len(names)) < num_layers
            self.rows["average"] = (of_layers / num_layers).astype(np.float32)

    def uses(self, corpus: SenseCorpus) -> Iterator[tuple[str, Instance, Float[np.ndarray, "R D"]]]:
        """Give each use with its document and vectors; those of several words are their mean."""
        for sentence, layers in self._stream(corpus):
            for use in sentence.instances:
                vectors = layers[:, use.start : use.end].mean(axis=1)
                if self._even:
                    vectors = np.concatenate([vectors, unit(vectors[1:]).sum(axis=0)[None]])
                yield sentence.document, use, vectors
            self._watch.add(len(sentence.words))

    def _stream(self, corpus: SenseCorpus) -> Iterator[tuple[Sentence, Float[np.ndarray, "L T D"]]]:
        if isinstance(self._source, WordVectors):
            for sentence in corpus:
                yield sentence, self._source.lookup(sentence.words)[None]
            return
        here, there = itertools.tee(corpus)  # which holds as many sentences as the embedder does
        found = self._source.stream((sentence.words for sentence in there), layers="all")
        for sentence, embedded in zip(here, found, strict=True):
            yield sentence, embedded.vectors


class _Sums:
    """The sum of the vectors of each sense, and how many they are."""

    def __init__(self, senses: dict[tuple[str, str, str], int], layers: _Layers) -> None:
        self.senses = senses
        self.counts = np.zeros(len(senses), dtype=np.int64)
        # Pages of zeros that nobody writes to cost nothing: few senses are in held-out documents.
        self.vectors = np.zeros((len(senses), layers.num_sums, layers.width), dtype=np.float32)

    def add(self, use: Instance, vectors: Float[np.ndarray, "R D"]) -> None:
        """Count a use for each of its keys."""
        for key in use.keys:
            number = self.senses[use.lemma, use.pos, key]
            self.vectors[number] += vectors
            self.counts[number] += 1

    def merge(self, other: "_Sums") -> None:
        """Take in the uses of another."""
        (seen,) = other.counts.nonzero()
        self.vectors[seen] += other.vectors[seen]
        self.counts += other.counts

    def candidates(self, wordnet: WordNet) -> dict[tuple[str, str], list[tuple[str, int]]]:
        """Give the senses seen of each lemma, in WordNet's order."""
        found: dict[tuple[str, str], list[tuple[str, int]]] = {}
        for (lemma, pos, key), number in self.senses.items():
            if self.counts[number]:
                found.setdefault((lemma, pos), []).append((key, number))
        for named, seen in found.items():
            place = {key: place for place, key in enumerate(wordnet.senses(*named))}
            seen.sort(key=lambda sense: place.get(sense[0], len(place)))
        return found


class _Uses:
    """Uses to be told, with their vectors."""

    def __init__(self) -> None:
        self.instances: list[Instance] = []
        self.vectors: list[Shaped[np.ndarray, "R D"]] = []

    def add(self, use: Instance, vectors: Shaped[np.ndarray, "R D"]) -> None:
        self.instances.append(use)
        self.vectors.append(vectors)


def _table(
    rows: dict[str, np.ndarray], sums: _Sums, uses: _Uses, wordnet: WordNet, seed: int
) -> dict[str, Scores]:
    """Score the first sense, each row, and each row centred."""
    firsts = [wordnet.first(use.lemma, use.pos) for use in uses.instances]
    table = {FIRST_SENSE: score(uses.instances, firsts, seed=seed)}
    candidates = sums.candidates(wordnet)
    for row, shares in rows.items():
        known = np.einsum("r,srd->sd", shares, sums.vectors)
        averages = known / np.maximum(1, sums.counts)[:, None]
        vectors = np.stack([shares @ use.astype(np.float32) for use in uses.vectors])  # (N, D)
        for suffix, centre in (("", 0.0), (CENTRED, known.sum(axis=0) / sums.counts.sum())):
            near = _nearest(unit(averages - centre), unit(vectors - centre), uses, candidates)
            filled = [told or first for told, first in zip(near, firsts, strict=True)]
            alone = score(uses.instances, near, seed=seed)
            table[row + suffix] = score(uses.instances, filled, seed=seed) | {
                f"alone_{what}": value for what, value in alone.items()
            }
    return table


def _nearest(
    averages: Float[np.ndarray, "S D"],
    vectors: Float[np.ndarray, "N D"],
    uses: _Uses,
    candidates: dict[tuple[str, str], list[tuple[str, int]]],
) -> list[str | None]:
    """Give each use the sense of its lemma with the nearest average, None to a lemma not seen."""
    answers: list[str | None] = [None] * len(uses.instances)
    places: dict[tuple[str, str], list[int]] = {}
    for place, use in enumerate(uses.instances):
        places.setdefault((use.lemma, use.pos), []).append(place)
    for named in places.keys() & candidates.keys():
        keys, numbers = zip(*candidates[named], strict=True)
        cosines = vectors[places[named]] @ averages[list(numbers)].T
        best = (cosines >= cosines.max(axis=1, keepdims=True) - _SAME).argmax(axis=1)
        for place, sense in zip(places[named], best, strict=True):
            answers[place] = keys[sense]
    return answers
