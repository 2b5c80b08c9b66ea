"""elmore: ELMo as living software.

Importing it is cheap: torch is loaded when a name that needs it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from elmore.errors import ConfigError, DataError, ElmoreError, WeightsError

if TYPE_CHECKING:
    from elmore.embed.elmo import Elmo
    from elmore.embed.embedder import Embedder
    from elmore.embed.loading import load
    from elmore.model.bilm import BiLM
    from elmore.model.config import BiLMConfig
    from elmore.model.mix import SavedMix, ScalarMix
    from elmore.tasks.checkpoint import load_task

__version__ = "0.1.0"

__all__ = [
    "BiLM",
    "BiLMConfig",
    "ConfigError",
    "DataError",
    "Elmo",
    "ElmoreError",
    "Embedder",
    "SavedMix",
    "ScalarMix",
    "WeightsError",
    "load",
    "load_task",
]

_HOMES = {
    "BiLM": "elmore.model.bilm",
    "BiLMConfig": "elmore.model.config",
    "Elmo": "elmore.embed.elmo",
    "Embedder": "elmore.embed.embedder",
    "SavedMix": "elmore.model.mix",
    "ScalarMix": "elmore.model.mix",
    "load": "elmore.embed.loading",
    "load_task": "elmore.tasks.checkpoint",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- a module's names have any type
    if name not in _HOMES:
        raise AttributeError(f"module 'elmore' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
