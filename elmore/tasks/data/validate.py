"""Look the examples of a task over before hours are spent on them: what is odd, and what to do.

It knows no task but through `sentences` and `truth`, so it serves all of them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from elmore.tasks import DEFAULT_EMBEDDER
from elmore.tasks.data import datasets
from elmore.tasks.embedding import spec, word_vectors
from elmore.tasks.embedding.spec import Specification
from elmore.tasks.task import Task

LONG_SENTENCE = 400
"""In tokens: a batch is as long as its longest sentence."""
_SHOWN = 12  # labels at most, to a line
_TOLERATED = 0.05  # of the examples
_RARE = 0.3  # of the words: from here on it looks like another language


class Finding(NamedTuple):
    """One thing looked at."""

    split: str
    what: str
    found: str
    odd: bool = False
    advice: str = ""


class _Split:
    """The examples of a file, and what is asked about them more than once."""

    def __init__(self, task: Task, name: str, path: Path) -> None:
        self.name = name
        self.examples = datasets.read(task, path)
        self.sentences = [task.sentences(example) for example in self.examples]
        self.texts = [tuple(map(tuple, found)) for found in self.sentences]
        self.labels = [Counter(task.truth(example)) for example in self.examples]
        self.counts = Counter(label for found in self.labels for label in found.elements())
        self.words = Counter(w for found in self.sentences for s in found for w in s)

    def share(self, count: int) -> str:
        """Write a number of examples."""
        return f"{count:,} ({100 * count / len(self.examples):.1f} %)" if count else "none"


def look_over(
    task: Task, files: Mapping[str, Path], *, embedder: str = DEFAULT_EMBEDDER
) -> list[Finding]:
    """Say what files of examples are like, and what of it is odd; the first is the training's.

    Of the embedder, word vectors are opened; a biLM has a vector for any word.
    """
    named = spec.parse(embedder)
    splits = [_Split(task, name, path) for name, path in files.items()]
    vocabulary = _vocabulary(named, splits[0], task.config.words.min_count)
    found: list[Finding] = []
    for split in splits:
        found += _of_one(split)
        if split is not splits[0]:
            found += _of_two(split, splits[0])
        if vocabulary is not None:
            found.append(_words(split, vocabulary))
    return found


def _of_one(split: _Split) -> Iterator[Finding]:
    lengths = [len(sentence) for found in split.sentences for sentence in found]
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
        longest > LONG_SENTENCE,
        "a batch is as long as its longest sentence; is there a break missing?",
    )
    labels = split.counts
    if labels:
        shown = ", ".join(f"{label} {count:,}" for label, count in labels.most_common(_SHOWN))
        more = f" and {len(labels) - _SHOWN:,} more" if len(labels) > _SHOWN else ""
        yield Finding(
            split.name,
            "labels",
            f"{len(labels):,}: {shown}{more}",
            len(labels) == 1,
            "there is nothing to tell apart; is it the right column?",
        )
    yield Finding(
        split.name,
        "empty examples",
        split.share(empty),
        empty > 0,
        "there is no word to learn from or to be scored by",
    )
    yield Finding(
        split.name,
        "repeated examples",
        split.share(repeated),
        repeated > _TOLERATED * len(split.examples),
        "they weigh more than others; drop them if they should not",
    )


def _of_two(split: _Split, train: _Split) -> Iterator[Finding]:
    seen = set(train.texts)
    leaked = [number for number, text in enumerate(split.texts, 1) if text in seen]
    yield Finding(
        split.name,
        f"texts that are in {train.name}",
        split.share(len(leaked)) + (f", first example {leaked[0]}" if leaked else ""),
        len(leaked) > _TOLERATED * len(split.examples),
        "these are scored from memory; is it the same file, or the same source?",
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
        f"labels that {train.name} has not",
        f"{len({label for _, label in unknown}):,}{first}" if unknown else "none",
        bool(unknown),
        "no model can find these; are they written alike in both files?",
    )


class _Vocabulary(NamedTuple):
    """Which words have a vector of their own."""

    missing: str
    """What those are that have none."""
    advice: str
    has: Callable[[str], bool]


def _vocabulary(named: Specification, train: _Split, min_count: int) -> _Vocabulary | None:
    """Know the words of a file of vectors, or of the training; a biLM has a vector for any."""
    if named.glove is not None:
        vectors = word_vectors.read(named.glove)
        return _Vocabulary(
            "words without a vector",
            "is it the language of the vectors, and split alike?",
            lambda word: bool(vectors.ids([word])[0] != word_vectors.UNKNOWN),
        )
    if named.elmo is not None:
        return None
    return _Vocabulary(
        f"words too rare in {train.name}",
        "take ready-made vectors, or a biLM",
        lambda word: train.words[word] >= min_count,
    )


def _words(split: _Split, vocabulary: _Vocabulary) -> Finding:
    missing = Counter({w: n for w, n in split.words.items() if not vocabulary.has(w)})
    share = missing.total() / max(1, split.words.total())
    shown = ", ".join(word for word, _ in missing.most_common(5))
    found = f"{100 * share:.1f} %, such as {shown}" if missing else "none"
    return Finding(split.name, vocabulary.missing, found, share > _RARE, vocabulary.advice)
