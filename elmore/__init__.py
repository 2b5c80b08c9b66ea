"""elmore: ELMo as living software.

Importing it is cheap: torch is loaded when a name that needs it is first used. Reading text on a
CPU needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from elmore.errors import ConfigError, DataError, ElmoreError, WeightsError
from elmore.extras import require_torch

if TYPE_CHECKING:
    from elmore.embed.elmo import Elmo
    from elmore.embed.embedder import Embedder
    from elmore.embed.loading import load
    from elmore.model.bilm import BiLM
    from elmore.model.config import BiLMConfig
    from elmore.model.mix import ScalarMix
    from elmore.model.saved_mix import SavedMix
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
    "SavedMix": "elmore.model.saved_mix",
    "ScalarMix": "elmore.model.mix",
    "load": "elmore.embed.loading",
    "load_task": "elmore.tasks.checkpoint",
}
_OF_TORCH = frozenset({"BiLM", "Elmo", "ScalarMix", "load_task"})


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- a module's names have any type
    if name not in _HOMES:
        raise AttributeError(f"module 'elmore' has no attribute {name!r}")
    if name in _OF_TORCH:
        require_torch(f"elmore.{name}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
