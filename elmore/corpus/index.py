"""The schema of a corpus's index.json."""

import re
from dataclasses import dataclass
from typing import Any

from elmore import config
from elmore.errors import ConfigError, DataError

NUM_BYTE_COUNTS = 257
CORPUS_FILES = re.compile(
    r"index\.json|vocabulary\.txt|counts\.npy|types\.utf8|types\.offsets\.npy"
    r"|(train|valid)-[0-9]{5}\.(tokens|sentences)\.npy"
)
"""Names of the files of a corpus."""


@dataclass(frozen=True)
class _File:
    bytes: int
    sha256: str


@dataclass(frozen=True)
class _Shard:
    tokens: str
    sentences: str


@dataclass(frozen=True)
class _Split:
    shards: tuple[_Shard, ...]
    num_words: int
    num_sentences: int
    num_tokens: int
    num_unknown: int


@dataclass(frozen=True)
class _Splits:
    train: _Split
    valid: _Split


@dataclass(frozen=True)
class _Index:
    num_types: int
    byte_counts: tuple[int, ...]
    files: dict[str, _File]
    splits: _Splits
    provenance: dict

    def __post_init__(self) -> None:
        if len(self.byte_counts) != NUM_BYTE_COUNTS or min(self.byte_counts) < 0:
            raise ConfigError(f"byte_counts: expected {NUM_BYTE_COUNTS} counts")
        foreign = [name for name in self.files if not CORPUS_FILES.fullmatch(name)]
        if foreign:
            raise ConfigError(f"files: {foreign[0][:80]!r} is not a file of a corpus")
        for split in (self.splits.train, self.splits.valid):
            for name in (
                name for shard in split.shards for name in (shard.tokens, shard.sentences)
            ):
                if name not in self.files:
                    raise ConfigError(f"splits: {name[:80]!r} is not one of its files")


def check_index(index: dict[str, Any], where: str) -> None:
    """Raise DataError for an index that `elmore prepare` cannot have written; ignore new keys."""
    try:
        config.build(_Index, index, where, unknown="ignore")
    except ConfigError as error:
        raise DataError(f"{error}; prepare the corpus again") from error
