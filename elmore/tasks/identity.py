"""What a run was trained on and with, as its recipe.json records it for `--resume` to compare.

Files of examples are identified by their bytes, with the recipe's `data` settings that say how they
are read; an embedder is identified by its words and weights, wherever its files are.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elmore import config
from elmore.tasks import DEFAULT_EMBEDDER
from elmore.tasks.data.datasets import Lesson, digest
from elmore.tasks.task import TaskConfig


def choose_embedder(named: str | None, resumed: Path | None = None) -> str:
    """Return the named embedder, else the recorded one of the run to resume, else the default."""
    if named is not None:
        return named
    path = None if resumed is None else resumed / "recipe.json"
    recorded = config.read_json(path) if path and path.is_file() else {}
    match recorded.get("embedder"):
        case {"specification": str(specification)}:
            return specification
    return DEFAULT_EMBEDDER


def describe(
    lesson: Lesson,
    recipe: TaskConfig,
    examples: Sequence[Any],
    *,
    fraction: float | None = None,
    recorded: Path | None = None,
) -> dict[str, Any]:
    """Describe a training on some examples of a lesson.

    `recorded` is the recipe.json of a run to resume. What has not changed is described as it is
    there: an embedder whose path has changed, and examples that an earlier version identified by
    what was read.
    """
    before = config.read_json(recorded) if recorded and recorded.is_file() else {}
    settings, sources = config.as_dict(recipe), lesson.sources
    specification = str(sources.specification)
    match before.get("embedder"):
        case {"specification": there, **digests} if digests == sources.digests:
            specification = there
    match before.get("data"):
        case {"train": str(), "dev": str()}:
            data = {"train": digest(examples), "dev": digest(lesson.held_out)}
        case _:
            data = {**settings.get("data", {}), "sha256": lesson.sha256}
    if fraction is not None:
        data |= {"fraction": fraction, "examples": len(examples)}
    return {
        **settings,
        "task": lesson.task.name,
        "embedder": {"specification": specification, **sources.digests},
        "data": data,
    }
