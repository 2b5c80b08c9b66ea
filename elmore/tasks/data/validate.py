"""Validate the files of a task before training: counts, and what looks suspicious.

It uses a task only through `sentences` and `gold_labels`, so it works for all of them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from elmore.tasks import DEFAULT_EMBEDDER
from elmore.tasks.data.datasets import read_examples
from elmore.tasks.embedding import word_vectors
from elmore.tasks.embedding.spec import EmbedderSpec, parse_spec
from elmore.tasks.task import Task

MAX_SENTENCE_TOKENS = 400
"""A longer sentence is suspicious: a batch is padded to its longest sentence."""
_MAX_LABELS = 12  # listed on a line
_MAX_REPEATED = 0.05  # of the examples
_MAX_RARE = 0.3  # of the words: above, it is probably another language


class Finding(NamedTuple):
    """The result of one check."""

    split: str
    what: str
    found: str
    suspicious: bool = False
    advice: str = ""


class _Split:
    """The examples of a file, with what several checks need."""

    def __init__(self, task: Task, name: str, path: Path) -> None:
        self.name = name
        self.examples = read_examples(task, path)
        self.sentences = [task.sentences(example) for example in self.examples]
        self.texts = [tuple(map(tuple, sentences)) for sentences in self.sentences]
        self.labels = [Counter(task.gold_labels(example)) for example in self.examples]
        self.counts = Counter(label for sentences in self.labels for label in sentences.elements())
        self.words = Counter(w for sentences in self.sentences for s in sentences for w in s)

    def format_count(self, count: int) -> str:
        """Format a number of examples with its percentage."""
        return f"{count:,} ({100 * count / len(self.examples):.1f} %)" if count else "none"


def validate_files(
    task: Task, files: Mapping[str, Path], *, embedder: str = DEFAULT_EMBEDDER
) -> list[Finding]:
    """Check the files of a task.

    Args:
        task: the task, with its recipe.
        files: a file for each split, the training split first.
        embedder: an embedder spec; its word vectors are read to find unknown words.
    """
    spec = parse_spec(embedder)
    splits = [_Split(task, name, path) for name, path in files.items()]
    vocabulary = _find_vocabulary(spec, splits[0], task.config.words.min_count)
    findings: list[Finding] = []
    for split in splits:
        findings += _check_split(split)
        if split is not splits[0]:
            findings += _compare_splits(split, splits[0])
        if vocabulary is not None:
            findings.append(_check_words(split, vocabulary))
    return findings


def _check_split(split: _Split) -> Iterator[Finding]:
    lengths = [len(sentence) for sentences in split.sentences for sentence in sentences]
    longest = max(lengths, default=0)
    number = next((n for n, some in enumerate(split.sentences, 1) if longest in map(len, some)), 0)
    empty = sum(not some or not all(some) for some in split.sentences)
    repeated = len(split.examples) - len({repr(example) for example in split.examples})
    yield Finding(split.name, "examples", f"{len(split.examples):,}")
    yield Finding(split.name, "tokens", f"{sum(lengths):,}")
    yield Finding(
        split.name,
        "longest sentence",
        f"{longest:,} tokens, in example {number}",
        longest > MAX_SENTENCE_TOKENS,
        "a batch is padded to its longest sentence; is a sentence break missing?",
    )
    labels = split.counts
    if labels:
        listed = ", ".join(f"{label} {count:,}" for label, count in labels.most_common(_MAX_LABELS))
        more = f" and {len(labels) - _MAX_LABELS:,} more" if len(labels) > _MAX_LABELS else ""
        yield Finding(
            split.name,
            "labels",
            f"{len(labels):,}: {listed}{more}",
            len(labels) == 1,
            "all examples have the same label; is it the right column?",
        )
    yield Finding(
        split.name,
        "empty examples",
        split.format_count(empty),
        empty > 0,
        "an example without words cannot be learned from or scored",
    )
    yield Finding(
        split.name,
        "repeated examples",
        split.format_count(repeated),
        repeated > _MAX_REPEATED * len(split.examples),
        "repeated examples weigh more than others; remove them if that is not intended",
    )


def _compare_splits(split: _Split, train: _Split) -> Iterator[Finding]:
    train_texts = set(train.texts)
    leaked = [number for number, text in enumerate(split.texts, 1) if text in train_texts]
    yield Finding(
        split.name,
        f"texts that are in {train.name}",
        split.format_count(len(leaked)) + (f", first example {leaked[0]}" if leaked else ""),
        len(leaked) > _MAX_REPEATED * len(split.examples),
        "the model has seen these in training; is it the same file, or the same source?",
    )
    unknown = [
        (number, label)
        for number, labels in enumerate(split.labels, 1)
        for label in labels
        if label not in train.counts
    ]
    first = f", first {unknown[0][1]} in example {unknown[0][0]}" if unknown else ""
    yield Finding(
        split.name,
        f"labels that are not in {train.name}",
        f"{len({label for _, label in unknown}):,}{first}" if unknown else "none",
        bool(unknown),
        "no model can predict these; are they spelled the same in both files?",
    )


class _Vocabulary(NamedTuple):
    """Which words have a vector of their own."""

    missing: str
    """What a word without one is called."""
    advice: str
    contains: Callable[[str], bool]


def _find_vocabulary(spec: EmbedderSpec, train: _Split, min_count: int) -> _Vocabulary | None:
    """Return the words of a vector file or of the training text; a biLM knows every word."""
    if spec.glove is not None:
        vectors = word_vectors.read_word_vectors(spec.glove)
        return _Vocabulary(
            "words without a vector",
            "are the vectors of the same language, and the words tokenized the same way?",
            lambda word: bool(vectors.ids([word])[0] != word_vectors.UNKNOWN),
        )
    if spec.elmo is not None:
        return None
    return _Vocabulary(
        f"words too rare in {train.name}",
        "use pretrained word vectors, or a biLM",
        lambda word: train.words[word] >= min_count,
    )


def _check_words(split: _Split, vocabulary: _Vocabulary) -> Finding:
    missing = Counter({w: n for w, n in split.words.items() if not vocabulary.contains(w)})
    fraction = missing.total() / max(1, split.words.total())
    listed = ", ".join(word for word, _ in missing.most_common(5))
    listing = f"{100 * fraction:.1f} %, such as {listed}" if missing else "none"
    suspicious = fraction > _MAX_RARE
    return Finding(split.name, vocabulary.missing, listing, suspicious, vocabulary.advice)
