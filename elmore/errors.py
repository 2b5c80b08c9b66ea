"""What can go wrong that a user can mend: one sentence each, no traceback at the command line.

A message says where, what was found and what was expected, then what to do; it starts in lower
case and has no full stop. What only a bug can cause is an `assert`, not one of these.
"""

_LONGEST = 1500  # letters: a sentence may quote a file, and a line of it may be of any length


class ElmoreError(ValueError):
    """The family of everything elmore refuses; of a sentence too long, the middle is left out."""

    def __str__(self) -> str:
        text = super().__str__()
        return text if len(text) <= _LONGEST else f"{text[:1000]} … {text[-400:]}"


class ConfigError(ElmoreError):
    """A recipe, a config.json or an option that cannot be meant."""


class DataError(ElmoreError):
    """Text, a vocabulary or a corpus that cannot be read as what it should be."""


class WeightsError(ElmoreError):
    """A weight file that is damaged, foreign or of another model."""


class MissingPackageError(ElmoreError, ImportError):
    """A package that is not installed, by the command that installs it."""
