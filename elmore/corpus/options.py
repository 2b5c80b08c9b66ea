"""What decides how text becomes a corpus."""

from dataclasses import dataclass
from typing import Literal

from elmore.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to read the text and where to cut its vocabulary."""

    tokenized: bool = False
    """Each line is a sentence, its words between spaces."""
    wrapped: bool = False
    """A line may end within a sentence; without this, it ends one."""
    language: str = "en"
    """Whose abbreviations do not end a sentence."""
    column: str = "text"
    """Where a table holds the text."""
    errors: Literal["strict", "replace"] = "strict"
    """What to do with what is not UTF-8."""
    valid_share: float = 0.0
    """The share of the documents that are set aside for validation."""
    vocabulary_size: int = 200_000
    """How many words the vocabulary may list, its three marks aside."""
    min_count: int = 1
    """How often a word of the vocabulary occurs in the training text at least."""

    def __post_init__(self) -> None:
        if not 0 <= self.valid_share < 1:
            raise ConfigError(
                f"valid_share must be at least 0 and below 1, found {self.valid_share}"
            )
        for name in ("vocabulary_size", "min_count"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, found {getattr(self, name)}")
        if self.tokenized and self.wrapped:
            raise ConfigError("tokenized text has a sentence on each line: it cannot be wrapped")
