"""Errors that a user can fix: one sentence each, without a traceback on the command line.

A message says where, what was found and what was expected, then what to do; it starts in lower
case and has no full stop. What only a bug can cause is an `assert` instead.
"""

_MAX_LENGTH = 1500  # characters: a message may quote a line of a file, of any length


class ElmoreError(ValueError):
    """Base class of all elmore errors; the middle of a very long message is omitted."""

    def __str__(self) -> str:
        text = super().__str__()
        return text if len(text) <= _MAX_LENGTH else f"{text[:1000]} … {text[-400:]}"


class ConfigError(ElmoreError):
    """An invalid recipe, config.json or option."""


class DataError(ElmoreError):
    """Text, a vocabulary, a corpus or another file that cannot be used."""


class WeightsError(ElmoreError):
    """A weight file that is damaged, in an unknown format or of another model."""


class MissingPackageError(ElmoreError, ImportError):
    """An optional package is not installed; the message has the command that installs it."""
