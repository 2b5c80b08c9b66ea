"""What context does to a word: how much its vectors differ from sentence to sentence, per layer.

After Ethayarajh (2019). For the uses u_1 … u_n of a word form in n places, scaled to length one:

    self-similarity = mean over pairs i < j of u_i · u_j = (|u_1 + … + u_n|² - n) / (n (n - 1))

averaged over word forms; 1 is a vector that does not mind its context. For the words w_1 … w_m of
a sentence, whose mean is s:

    intra-sentence similarity = mean over i of cos(w_i, s)

averaged over sentences. Where all vectors lie in a narrow cone, even unlike words are similar, so
the mean cosine of random uses of different words, the anisotropy, is subtracted from both.

What is kept is a sum for each word form that was chosen and a few hundred vectors: memory does not
grow with the text.

Shapes: L layers, W word forms, N uses drawn, T tokens, D width.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from elmore.embed.embedder import Embedder
from elmore.errors import ConfigError, DataError
from elmore.probe import sample
from elmore.probe.cosine import unit

Progress = Callable[[float, int], None]
"""What is done, 0 to 1, and how many tokens that was."""

_RANDOM_USES = 1000  # a million pairs; their mean is known to a thousandth
_SHOWN = 10


@dataclass(frozen=True)
class Layer:
    """What context does in one layer; the last two are less the anisotropy."""

    layer: int
    self_similarity: float
    intra_sentence: float
    anisotropy: float
    self_similarity_corrected: float
    intra_sentence_corrected: float


@dataclass(frozen=True)
class WordForm:
    """One word form, and its self-similarity in each layer, less the anisotropy."""

    word: str
    uses: int
    self_similarity_corrected: tuple[float, ...]


@dataclass(frozen=True)
class Context:
    """What was found, and in how much text."""

    layers: tuple[Layer, ...]
    steadiest: tuple[WordForm, ...]
    """Those that the top layer changes least."""
    most_changed: tuple[WordForm, ...]
    num_sentences: int
    """Of those drawn, the ones that differ."""
    num_tokens: int
    num_words: int
    """Word forms that were measured."""
    least: int
    seed: int


def measure(
    elmo: Embedder,
    sentences: Iterable[Sequence[str]],
    *,
    num_sentences: int = 2000,
    num_words: int = 5000,
    least: int = 5,
    seed: int = 0,
    progress: Progress | None = None,
) -> Context:
    """Draw sentences, and measure every word form that is there at least so often.

    Of a sentence that comes again one is kept: uses in one and the same context tell nothing. Of
    more than `num_words` word forms as many are drawn.
    """
    if least < 2 or num_words < 1:
        raise ConfigError(
            f"uses are compared from two on, and at least one word: found {least} and {num_words}"
        )
    some, _ = sample.drawn(sentences, num_sentences, seed)
    text = [list(words) for words in dict.fromkeys(map(tuple, some))]
    chosen = _chosen(text, least, num_words, seed)
    sums = _Sums(elmo, chosen, text, seed)
    done, total = 0, sum(map(len, text))
    for words, found in zip(text, elmo.stream(text, layers="all"), strict=True):
        sums.add(words, found.vectors)
        done += len(words)
        if progress:
            progress(done / total, done)
    return sums.result(least=least, seed=seed)


def _chosen(text: list[list[str]], least: int, most: int, seed: int) -> dict[str, int]:
    """Give how often each word form to be measured is there."""
    counts = Counter(word for words in text for word in words)
    often = sorted(word for word, count in counts.items() if count >= least)
    if not often:
        raise DataError(
            f"no word form is there {least} times or more in {len(text)} different sentences; "
            "give more text, or pass a lower --least"
        )
    if len(counts) < 2:
        raise DataError(
            f"{often[0]!r} is the only word form of the text; its uses are compared with those of "
            "other words, so give more text"
        )
    words, _ = sample.drawn(often, most, seed)
    return {word: counts[word] for word in words}


class _Sums:
    """All that is kept of the vectors."""

    def __init__(
        self, elmo: Embedder, counts: dict[str, int], text: list[list[str]], seed: int
    ) -> None:
        self.counts, self.text = counts, text
        self._numbers = {word: number for number, word in enumerate(counts)}
        shape = (len(counts), elmo.num_layers, elmo.width)
        self._sums = np.zeros(shape, dtype=np.float32)  # (W, L, D)
        self._intra = np.zeros(elmo.num_layers)
        self._several = 0
        self._place = 0
        places = range(sum(map(len, text)))
        self._wanted = set(sample.drawn(places, _RANDOM_USES, seed)[0])
        self._random: list[Float[np.ndarray, "L D"]] = []
        self._random_words: list[str] = []

    def add(self, words: list[str], vectors: Float[np.ndarray, "L T D"]) -> None:
        """Take in a sentence."""
        units = unit(vectors)
        for place, word in enumerate(words):
            if word in self._numbers:
                self._sums[self._numbers[word]] += units[:, place]
            if self._place + place in self._wanted:
                self._random.append(units[:, place])
                self._random_words.append(word)
        self._place += len(words)
        if len(words) > 1:  # one word is its own mean
            mean = unit(vectors.mean(axis=1))
            self._intra += np.einsum("ltd,ld->lt", units, mean).mean(axis=1)
            self._several += 1

    def result(self, *, least: int, seed: int) -> Context:
        counts = np.array(list(self.counts.values()))[:, None]
        lengths = np.square(self._sums, dtype=np.float64).sum(axis=2)  # (W, L)
        similar = (lengths - counts) / (counts * (counts - 1))
        anisotropy = self._anisotropy()
        intra = self._intra / max(1, self._several)
        layers = [
            Layer(layer, own, within, base, own - base, within - base)
            for layer, (own, within, base) in enumerate(
                zip(similar.mean(axis=0).tolist(), intra.tolist(), anisotropy.tolist(), strict=True)
            )
        ]
        words = [
            WordForm(word, count, tuple((row - anisotropy).tolist()))
            for (word, count), row in zip(self.counts.items(), similar, strict=True)
        ]
        words.sort(key=lambda found: (found.self_similarity_corrected[-1], found.word))
        shown = min(_SHOWN, len(words) // 2)
        return Context(
            tuple(layers),
            tuple(words[::-1][:shown]),
            tuple(words[:shown]),
            len(self.text),
            sum(map(len, self.text)),
            len(words),
            least,
            seed,
        )

    def _anisotropy(self) -> Float[np.ndarray, " L"]:
        """Give the mean cosine of the random uses, over the pairs of different words."""
        numbers = {word: number for number, word in enumerate(dict.fromkeys(self._random_words))}
        forms = np.array([numbers[word] for word in self._random_words])
        differ = forms[:, None] != forms[None]
        if not differ.any():
            raise DataError(
                f"the uses drawn are all of {self._random_words[0]!r}; give more text, or pass "
                "another --seed"
            )
        vectors = np.stack(self._random, axis=1)  # (L, N, D)
        return np.array([(layer @ layer.T)[differ].mean(dtype=np.float64) for layer in vectors])
