"""The tasks by name: those of this package, and those that other packages install.

A package adds a task with an entry point in the group `elmore.tasks`, whose name is the task's name
and whose object is its `Task` class, with a `recipe.toml` beside the module of the class (other
recipes beside it are found by the names of their files, without `.toml`):

    [project.entry-points."elmore.tasks"]
    supersenses = "my_package.supersenses:Supersenses"

Nothing of a task is imported before it is asked for.
"""

import importlib
import inspect
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from elmore import config
from elmore.errors import ConfigError

if TYPE_CHECKING:
    from elmore.tasks.task import Task, TaskConfig

GROUP = "elmore.tasks"

TASKS = {
    "ner": "elmore.tasks.ner.task:NER",
    "pos": "elmore.tasks.pos.task:POS",
    "sst": "elmore.tasks.sst.task:SST",
    "snli": "elmore.tasks.snli.task:SNLI",
    "squad": "elmore.tasks.squad.task:Squad",
    "srl": "elmore.tasks.srl.task:SRL",
    "coref": "elmore.tasks.coref.task:Coref",
}
"""Tasks of this package: where the class of each is."""


def task_names() -> list[str]:
    """Return the names of all tasks, those of this package first."""
    return list(dict.fromkeys([*TASKS, *sorted(_installed())]))


def find_task(name: str) -> "type[Task]":
    """Return the class of a task; an installed package cannot replace one of this package.

    Args:
        name: a name of `task_names()`.

    Raises:
        ConfigError: there is no such task, or its package cannot be imported.
    """
    if name in TASKS:  # without reading the metadata of all packages
        module, _, attribute = TASKS[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    installed = _installed()
    if name not in installed:
        names = task_names()
        hint = config.suggest(name, names) or f"known tasks: {', '.join(names)}"
        raise ConfigError(f"no task {name!r}; {hint}")
    return _load(installed[name])


def list_recipes(task: "type[Task]") -> dict[str, Path]:
    """Return the files of the recipes of a task by name; `recipe` is the default."""
    folder = Path(inspect.getfile(task)).parent
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_recipe(
    task: "type[Task]", recipe: str | Path | None = None, overrides: Sequence[str] = ()
) -> "TaskConfig":
    """Read a recipe of a task.

    Args:
        task: class of the task.
        recipe: a name such as `paper`, or a TOML file; the default is the `recipe.toml` beside the
            module of the class.
        overrides: `section.key=value` settings that replace those of the file.

    Raises:
        ConfigError: there is no such recipe, or a key or value in it is not one of the task's.
    """
    named = list_recipes(task)
    if recipe is None:
        path = Path(inspect.getfile(task)).parent / "recipe.toml"
    else:
        path = named.get(str(recipe), Path(recipe))
        if not path.exists():
            raise ConfigError(
                f"{recipe}: no such recipe of {task.name}; name a file, or one of "
                f"{', '.join(named)}"
            )
    return config.read_recipe(task.config_class, path, overrides)


def _installed() -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=GROUP)}


def _load(point: metadata.EntryPoint) -> "type[Task]":
    from elmore.tasks.task import Task

    try:
        task = point.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"task {point.name!r}: {point.value} cannot be loaded ({error})"
        ) from error
    if not (isinstance(task, type) and issubclass(task, Task)) or task.name != point.name:
        raise ConfigError(
            f"task {point.name!r}: expected a subclass of elmore.tasks.task.Task with the name "
            f"{point.name!r}, found {point.value}"
        )
    return task
