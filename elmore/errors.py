"""What can go wrong that a user can mend: one sentence each, no traceback at the command line.

A message says where, what was found and what was expected, then what to do; it starts in lower
case and has no full stop. What only a bug can cause is an `assert`, not one of these.
"""


class ElmoreError(ValueError):
    """The family of everything elmore refuses."""


class ConfigError(ElmoreError):
    """A recipe, a config.json or an option that cannot be meant."""


class DataError(ElmoreError):
    """Text, a vocabulary or a corpus that cannot be read as what it should be."""


class WeightsError(ElmoreError):
    """A weight file that is damaged, foreign or of another model."""


class MissingPackageError(ElmoreError, ImportError):
    """A package that is not installed, by the command that installs it."""
