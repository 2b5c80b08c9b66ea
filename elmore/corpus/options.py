"""Options of `elmore prepare` that decide the content of a corpus."""

import re
from dataclasses import dataclass
from typing import Literal

from elmore.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """How to read the text and how to limit its vocabulary."""

    tokenized: bool = False
    """Each line is a sentence, already split on spaces."""
    hard_wrapped: bool = False
    """A sentence may continue on the next line; otherwise each line ends one."""
    language: str = ""
    """Code of the language, for its abbreviations and the model card; empty: as English."""
    column: str = "text"
    """Text column of tables."""
    errors: Literal["strict", "replace"] = "strict"
    """How to treat invalid UTF-8."""
    valid_fraction: float = 0.0
    """Fraction of the documents to use for validation."""
    vocabulary_size: int = 200_000
    """Maximum number of words in the vocabulary, without its three marks."""
    min_count: int = 1
    """Minimum count of a word of the vocabulary in the training text."""

    def __post_init__(self) -> None:
        if not 0 <= self.valid_fraction < 1:
            raise ConfigError(
                f"valid_fraction must be at least 0 and below 1, found {self.valid_fraction}"
            )
        if not re.fullmatch("([a-z]{2,3})?", self.language):
            raise ConfigError(
                f"language must be a code of ISO 639 such as en or de, found {self.language!r}"
            )
        for name in ("vocabulary_size", "min_count"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, found {getattr(self, name)}")
        if self.tokenized and self.hard_wrapped:
            raise ConfigError("tokenized text has one sentence per line: it cannot be hard-wrapped")
