"""Compare the meaning of words in two corpora: sample uses, embed them, measure, rank.

Words are measured one after another, so that the vectors of only one are in memory, and each result
is stored before the next begins (`journal.py`).
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float

from elmore.embed.embedder import Embedder
from elmore.embed.outputs import find_whitening
from elmore.errors import ConfigError, DataError
from elmore.probe.change.corpora import PeriodCorpus, Use, find_shared_layer, open_period
from elmore.probe.change.journal import (
    ChangeJob,
    ChangeJournal,
    PeriodUse,
    SenseCluster,
    WordChange,
    WordCount,
    Words,
)
from elmore.probe.change.measures import Measure, measure_moves, measure_scores
from elmore.probe.clustering import MAX_CLUSTERS
from elmore.probe.cosine import normalize
from elmore.probe.neighbors.source_text import TextOptions
from elmore.probe.neighbors.storage import resolve_layers
from elmore.probe.occurrence_map import OccurrenceMap, central_occurrence, map_occurrences
from elmore.probe.occurrences import Occurrence
from elmore.text.files import numbered_lines
from elmore.weights.digest import model_digest

RankBy = Literal["apd", "prt", "jsd"]
MIN_USES = 10
"""Fewer uses than this say too little about a word."""
_USES_OF_SENSE = 10  # on average; of twenty uses, eight clusters would be pairs of equal phrases


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Functions to call with the progress."""

    read: Callable[[float | None, int], None] = lambda fraction, sentences: None
    """With the fraction of both corpora that has been read, and the sentences."""
    measure: Callable[[float, int], None] = lambda fraction, words: None
    """With the fraction of the words that has been measured, and their number."""


class ChangeStudy:
    """The words of two corpora, by how much they changed."""

    def __init__(self, journal: ChangeJournal, words: Words, rank_by: RankBy) -> None:
        self.layer = journal.job.layer
        self.left_out = words.left_out
        """Words with too few uses."""
        self._journal = journal
        values: dict[str, float] = {}
        for number, count in enumerate(words.measured):
            values[count.word] = self.measure(self._read(number), rank_by).value
        self._numbers = {word: number for number, word in enumerate(values)}
        self.ranking = tuple(sorted(values, key=lambda word: (-values[word], word)))
        """The words, the most changed first."""

    def _read(self, number: int) -> WordChange:
        change = self._journal.change(number)
        if change is None:
            raise DataError(f"{self._journal.folder}: deleted or damaged; compare again")
        return change

    def __iter__(self) -> Iterator[WordChange]:
        """Yield the change of each word, the most changed first; they are read from disk."""
        return (self[word] for word in self.ranking)

    def __getitem__(self, word: str) -> WordChange:
        """Return the change of a word."""
        return self._read(self._numbers[word])

    def __len__(self) -> int:
        """Return the number of words."""
        return len(self.ranking)

    @staticmethod
    def measure(change: WordChange, rank_by: RankBy) -> Measure:
        """Return one of the three measures."""
        return getattr(change.scores, rank_by)


def compare_corpora(
    embedder: Embedder,
    old: str | Path,
    new: str | Path,
    *,
    words: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
    layer: str | None = None,
    rank_by: RankBy = "apd",
    max_uses: int = 200,
    min_uses: int = MIN_USES,
    max_words: int = 1000,
    seed: int = 0,
    options: TextOptions | None = None,
    progress: Progress | None = None,
) -> ChangeStudy:
    """Measure how much the meaning of words differs between two corpora.

    Results are stored in the user's cache: a comparison that was stopped continues, and one that is
    finished is only read.

    Args:
        embedder: The model that embeds the uses.
        old: A text, a pattern of texts, or an index folder of `elmore neighbors`.
        new: The corpus of the other period.
        words: The words to measure, as a list, or each with its forms, such as
            {"mouse": ["mouse", "mice"]}. By default the most frequent words of letters that occur
            in both corpora.
        layer: The layer to compare: top, average, cloze, whitened or a number. Default: the top
            layer, or one that the given indexes have stored.
        rank_by: The measure that orders the words.
        max_uses: At most this many uses of a word are sampled from each corpus.
        min_uses: Words with fewer uses in either corpus are left out.
        max_words: At most this many words are measured, if `words` is not given.
        seed: Seed of the samples.
        options: How texts are read.
        progress: Functions to call with the progress.

    Returns:
        The ranked words, with their uses.

    Raises:
        DataError: A corpus cannot be read, both have a text in common, or no word occurs often
            enough.
        ConfigError: An option is impossible.
    """
    progress = progress or Progress()
    if min_uses < 2 or max_uses < min_uses:
        raise ConfigError(
            f"expected min_uses of 2 or more and max_uses of at least that, found {min_uses} and "
            f"{max_uses}"
        )
    layers = resolve_layers([layer or "top"], embedder.num_layers)
    if len(layers) > 1:
        raise ConfigError(f"layer {layer!r}: a use has one vector; pass one layer")
    corpora = [open_period(str(name), embedder, options or TextOptions()) for name in (old, new)]
    if shared := {*corpora[0].digests} & {*corpora[1].digests}:
        raise DataError(
            f"{old} and {new} have {len(shared)} text{'s' if len(shared) > 1 else ''} in common; "
            "pass two corpora that differ"
        )
    chosen = layers[0] if layer else find_shared_layer(corpora, layers[0])
    forms = None if words is None else _forms(words)
    job = ChangeJob(
        model=model_digest(embedder.bundle),
        initial_state=embedder.initial_state,
        precision="fast" if embedder.is_fast else "exact",
        layer=chosen,
        whitening=find_whitening(embedder.whitening).digest if chosen == "whitened" else "",
        old=_hash([corpora[0].is_index, *corpora[0].digests]),
        new=_hash([corpora[1].is_index, *corpora[1].digests]),
        words="" if forms is None else _hash(forms),
        min_uses=min_uses,
        max_uses=max_uses,
        max_words=max_words if forms is None else 0,
        seed=seed,
    )
    journal = ChangeJournal(job.folder, job)
    try:
        found = _complete(journal, corpora, forms, progress)
        return ChangeStudy(journal, found, rank_by)
    finally:
        journal.close()


def read_words(path: Path) -> dict[str, list[str]]:
    """Read the words to compare: one in each line, with its other forms after commas.

    Raises:
        DataError: The file is empty, or a word is listed twice or has a space in it.
    """
    words: dict[str, list[str]] = {}
    seen: dict[str, str] = {}
    for where, line in numbered_lines(path):
        forms = [form.strip() for form in line.split(",") if form.strip()]
        for form in forms:
            if len(form.split()) > 1:
                raise DataError(
                    f"{where}: {form!r} is more than one token; a line has one word, and commas "
                    "separate its forms"
                )
            if form.casefold() in seen:
                raise DataError(f"{where}: {form!r} is listed already at {seen[form.casefold()]}")
            seen[form.casefold()] = where
        if forms:
            words[forms[0]] = forms
    if not words:
        raise DataError(f"{path}: holds no words; expected one in each line")
    return words


def _forms(words: Mapping[str, Sequence[str]] | Sequence[str]) -> dict[str, str]:
    """Return the word of each form in lower case."""
    if isinstance(words, str):
        raise ConfigError(f"words={words!r}: expected a list of words, or a dict of their forms")
    pairs = words.items() if isinstance(words, Mapping) else ((word, [word]) for word in words)
    result: dict[str, str] = {}
    for word, forms in pairs:
        for form in forms:
            if result.setdefault(form.casefold(), word) != word:
                raise ConfigError(
                    f"words: {form!r} is a form of both {result[form.casefold()]!r} and {word!r}"
                )
        if not forms:
            raise ConfigError(f"words: {word!r} has no forms; list at least the word itself")
    if not result:
        raise ConfigError("words: the list is empty; pass None to compare the most frequent words")
    return result


def _hash(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _complete(
    journal: ChangeJournal,
    corpora: Sequence[PeriodCorpus],
    forms: Mapping[str, str] | None,
    progress: Progress,
) -> Words:
    """Measure the words that are missing in the journal."""
    found = journal.words()
    if found is not None:
        missing = [i for i in range(len(found.measured)) if journal.change(i) is None]
        if not missing:
            return found
        forms = _only([found.measured[number].word for number in missing], forms)
    elif forms is None:
        forms = _common_words(corpora, journal.job, progress)
    job = journal.job
    old, new = (
        corpus.sample_uses(forms, job.max_uses, job.seed, _half(progress, number))
        for number, corpus in enumerate(corpora)
    )
    if found is None:
        counts = [
            WordCount(word=word, old=old[word].total, new=new[word].total)
            for word in dict.fromkeys(forms.values())
        ]
        found = _choose(counts, job.min_uses)
        journal.write_words(found)
    for number, count in enumerate(found.measured):
        if journal.change(number) is None:
            samples = old[count.word].uses, new[count.word].uses
            vectors = [
                corpus.embed(uses, job.layer) for corpus, uses in zip(corpora, samples, strict=True)
            ]
            journal.write_change(number, measure_word(count, *samples, *vectors, seed=job.seed))
        progress.measure((number + 1) / len(found.measured), number + 1)
    return found


def _only(words: Sequence[str], forms: Mapping[str, str] | None) -> dict[str, str]:
    """Return the forms of some words; without forms, the words are their own."""
    if forms is None:
        return {word: word for word in words}
    return {form: word for form, word in forms.items() if word in {*words}}


def _half(progress: Progress, number: int) -> Callable[[float | None, int], None]:
    """Return the progress of reading the first or the second corpus."""
    return lambda done, count: progress.read(None if done is None else (done + number) / 2, count)


def _common_words(
    corpora: Sequence[PeriodCorpus], job: ChangeJob, progress: Progress
) -> dict[str, str]:
    """Return the most frequent words that both corpora have often enough."""
    old, new = (
        corpus.count_words(_half(progress, number)) for number, corpus in enumerate(corpora)
    )
    often = {word: min(old[word], new[word]) for word in old if word in new}
    words = sorted(
        (word for word, count in often.items() if count >= job.min_uses),
        key=lambda word: (-often[word], word),
    )
    if not words:
        raise DataError(
            f"no word of letters occurs {job.min_uses} times in both {corpora[0].name} and "
            f"{corpora[1].name}; pass longer texts, or a lower --min-uses"
        )
    return {word: word for word in words[: job.max_words]}


def _choose(counts: Sequence[WordCount], min_uses: int) -> Words:
    rare = [count for count in counts if min(count.old, count.new) < min_uses]
    if len(rare) == len(counts):
        first = rare[0]
        raise DataError(
            f"none of the {len(rare)} words occurs {min_uses} times in both corpora, such as "
            f"{first.word!r} with {first.old} old and {first.new} new uses; pass longer texts, "
            "other words, or a lower --min-uses"
        )
    measured = tuple(count for count in counts if min(count.old, count.new) >= min_uses)
    return Words(measured=measured, left_out=tuple(rare))


def measure_word(
    count: WordCount,
    old: Sequence[Use],
    new: Sequence[Use],
    old_vectors: Float[np.ndarray, "N D"],
    new_vectors: Float[np.ndarray, "M D"],
    *,
    seed: int = 0,
) -> WordChange:
    """Cluster the uses of both periods together, measure the change, and place them on a map."""
    old_vectors, new_vectors = normalize(old_vectors), normalize(new_vectors)  # as in an index
    uses = [*old, *new]
    both = [Occurrence(list(use.tokens), use.position, use.position + 1) for use in uses]
    mapped = map_occurrences(
        count.word,
        both,
        np.concatenate([old_vectors, new_vectors]),
        layers="",
        max_clusters=max(2, min(MAX_CLUSTERS, len(both) // _USES_OF_SENSE)),
        seed=seed,
    )
    clusters = np.array([use.cluster for use in mapped.uses])
    scores = measure_scores(
        old_vectors, new_vectors, clusters[: len(old)], clusters[len(old) :], seed=seed
    )
    moved = np.concatenate(measure_moves(old_vectors, new_vectors)).tolist()
    places = zip(uses, mapped.uses, moved, strict=True)
    return WordChange(
        word=count.word,
        old=count.old,
        new=count.new,
        old_sample=len(old),
        new_sample=len(new),
        scores=scores,
        senses=tuple(_senses(mapped, len(old))),
        silhouette=mapped.silhouette,
        variance=mapped.variance or (),
        uses=tuple(
            PeriodUse(
                period="old" if number < len(old) else "new",
                line=use.line,
                tokens=tuple(use.tokens),
                position=use.position,
                cluster=place.cluster,
                moved=distance,
                x=place.x,
                y=place.y,
            )
            for number, (use, place, distance) in enumerate(places)
        ),
    )


def _senses(mapped: OccurrenceMap, num_old: int) -> Iterator[SenseCluster]:
    num_new = len(mapped.uses) - num_old
    for cluster in range(mapped.num_clusters):
        inside = [number for number, use in enumerate(mapped.uses) if use.cluster == cluster]
        old = sum(number < num_old for number in inside)
        yield SenseCluster(
            old=old,
            new=len(inside) - old,
            old_share=old / num_old,
            new_share=(len(inside) - old) / num_new,
            example=mapped.uses.index(
                central_occurrence([mapped.uses[number] for number in inside])
            ),
        )
