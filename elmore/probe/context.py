"""Measure how much the vectors of a word depend on its context, per layer (Ethayarajh, 2019).

For the n occurrences u_1 … u_n of a word form, scaled to unit length:

    self-similarity = mean over pairs i < j of u_i · u_j = (|u_1 + … + u_n|² - n) / (n (n - 1))

averaged over word forms; 1 means that context does not change the vector. For the words w_1 … w_m
of a sentence with mean s:

    intra-sentence similarity = mean over i of cos(w_i, s)

averaged over sentences. If all vectors lie in a narrow cone, even unrelated words are similar.
Both measures are therefore corrected by subtracting the anisotropy: the mean cosine of random
occurrences of different words.

Memory does not grow with the text: only one sum per measured word form and a few hundred vectors
are kept.

Shapes: L layers, W word forms, N sampled occurrences, T tokens, D width.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from elmore.embed.embedder import Embedder
from elmore.errors import ConfigError, DataError
from elmore.probe import sample
from elmore.probe.cosine import normalize

Progress = Callable[[float, int], None]
"""Called with the fraction done, 0 to 1, and the number of tokens embedded."""

_RANDOM_OCCURRENCES = 1000  # a million pairs: enough for three digits of their mean
_NUM_EXTREMES = 10


@dataclass(frozen=True)
class LayerSimilarity:
    """Mean similarities in one layer; "corrected" means after subtracting the anisotropy."""

    layer: int
    self_similarity: float
    intra_sentence: float
    anisotropy: float
    self_similarity_corrected: float
    intra_sentence_corrected: float


@dataclass(frozen=True)
class WordForm:
    """One word form, and its corrected self-similarity in each layer."""

    word: str
    uses: int
    self_similarity_corrected: tuple[float, ...]


@dataclass(frozen=True)
class Contextuality:
    """Similarities per layer, and the size of the sample."""

    layers: tuple[LayerSimilarity, ...]
    steadiest: tuple[WordForm, ...]
    """Word forms whose top-layer vectors depend on context the least."""
    most_changed: tuple[WordForm, ...]
    num_sentences: int
    """Distinct sentences of the sample."""
    num_tokens: int
    num_words: int
    """Word forms that were measured."""
    min_uses: int
    seed: int


def measure_contextuality(
    elmo: Embedder,
    sentences: Iterable[Sequence[str]],
    *,
    num_sentences: int = 2000,
    max_words: int = 5000,
    min_uses: int = 5,
    seed: int = 0,
    progress: Progress | None = None,
) -> Contextuality:
    """Sample sentences and measure every word form that occurs often enough.

    Duplicate sentences are dropped, because occurrences in identical contexts are equal. If more
    than `max_words` forms occur `min_uses` times, they are sampled too.
    """
    if min_uses < 2 or max_words < 1:
        raise ConfigError(
            f"expected min_uses of 2 or more and max_words of 1 or more, found {min_uses} and "
            f"{max_words}"
        )
    drawn, _ = sample.reservoir_sample(sentences, num_sentences, seed)
    text = [list(words) for words in dict.fromkeys(map(tuple, drawn))]
    sums = _Sums(elmo, _count_words(text, min_uses, max_words, seed), text, seed)
    done, total = 0, sum(map(len, text))
    for words, embedded in zip(text, elmo.stream(text, layers="all"), strict=True):
        sums.add(words, embedded.vectors)
        done += len(words)
        if progress:
            progress(done / total, done)
    return sums.result(min_uses=min_uses, seed=seed)


def _count_words(text: list[list[str]], min_uses: int, max_words: int, seed: int) -> dict[str, int]:
    """Return the number of occurrences of each word form to measure."""
    counts = Counter(word for words in text for word in words)
    frequent = sorted(word for word, count in counts.items() if count >= min_uses)
    if not frequent:
        raise DataError(
            f"no word form occurs {min_uses} times or more in {len(text)} distinct sentences; "
            "give more text, or pass a lower --min-uses"
        )
    if len(counts) < 2:
        raise DataError(
            f"{frequent[0]!r} is the only word form of the text; it is compared with other words, "
            "so give more text"
        )
    words, _ = sample.reservoir_sample(frequent, max_words, seed)
    return {word: counts[word] for word in words}


class _Sums:
    """Running sums over the embedded sentences."""

    def __init__(
        self, elmo: Embedder, counts: dict[str, int], text: list[list[str]], seed: int
    ) -> None:
        self.counts, self.text = counts, text
        self._row_of = {word: row for row, word in enumerate(counts)}
        shape = (len(counts), elmo.num_layers, elmo.width)
        self._sums = np.zeros(shape, dtype=np.float32)  # (W, L, D)
        self._intra = np.zeros(elmo.num_layers)
        self._num_intra = 0
        self._num_tokens = 0
        positions = range(sum(map(len, text)))
        self._sampled = set(sample.reservoir_sample(positions, _RANDOM_OCCURRENCES, seed)[0])
        self._random: list[Float[np.ndarray, "L D"]] = []
        self._random_words: list[str] = []

    def add(self, words: list[str], vectors: Float[np.ndarray, "L T D"]) -> None:
        """Add a sentence."""
        units = normalize(vectors)
        for position, word in enumerate(words):
            if word in self._row_of:
                self._sums[self._row_of[word]] += units[:, position]
            if self._num_tokens + position in self._sampled:
                self._random.append(units[:, position])
                self._random_words.append(word)
        self._num_tokens += len(words)
        if len(words) > 1:  # a single word equals its mean
            mean = normalize(vectors.mean(axis=1))
            self._intra += np.einsum("ltd,ld->lt", units, mean).mean(axis=1)
            self._num_intra += 1

    def result(self, *, min_uses: int, seed: int) -> Contextuality:
        counts = np.array(list(self.counts.values()))[:, None]
        lengths = np.square(self._sums, dtype=np.float64).sum(axis=2)  # (W, L)
        similarity = (lengths - counts) / (counts * (counts - 1))
        anisotropy = self._anisotropy()
        intra = self._intra / max(1, self._num_intra)
        layers = [
            LayerSimilarity(layer, own, within, base, own - base, within - base)
            for layer, (own, within, base) in enumerate(
                zip(
                    similarity.mean(axis=0).tolist(),
                    intra.tolist(),
                    anisotropy.tolist(),
                    strict=True,
                )
            )
        ]
        words = [
            WordForm(word, count, tuple((row - anisotropy).tolist()))
            for (word, count), row in zip(self.counts.items(), similarity, strict=True)
        ]
        words.sort(key=lambda form: (form.self_similarity_corrected[-1], form.word))
        size = min(_NUM_EXTREMES, len(words) // 2)
        return Contextuality(
            tuple(layers),
            tuple(words[::-1][:size]),
            tuple(words[:size]),
            len(self.text),
            sum(map(len, self.text)),
            len(words),
            min_uses,
            seed,
        )

    def _anisotropy(self) -> Float[np.ndarray, " L"]:
        """Return the mean cosine of the sampled occurrences over pairs of different words."""
        ids = {word: number for number, word in enumerate(dict.fromkeys(self._random_words))}
        word_ids = np.array([ids[word] for word in self._random_words])
        differ = word_ids[:, None] != word_ids[None]
        if not differ.any():
            raise DataError(
                f"the sampled occurrences are all of {self._random_words[0]!r}; give more text, or "
                "pass another --seed"
            )
        vectors = np.stack(self._random, axis=1)  # (L, N, D)
        return np.array([(layer @ layer.T)[differ].mean(dtype=np.float64) for layer in vectors])
