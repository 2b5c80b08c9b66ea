"""Write docs/command-line.md and docs/recipes.md from the code: python docs/write_reference.py.

Run it after a change of a command, an option or a setting; tests/test_reference.py compares.
"""

import ast
import dataclasses
import inspect
import types
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from elmore import cli
from elmore.lm.config import FinetuneConfig, PretrainConfig
from elmore.tasks import registry
from elmore.tasks.task import TaskConfig

DOCS = Path(__file__).resolve().parent
Key = tuple[str, str, str, str]
"""A key of a recipe, its type, its default and its meaning."""

_COMMANDS = """# Command line

Every command, its arguments and its options, as `elmore COMMAND --help` shows them. Results go to
standard output, everything else to standard error. The exit status is 0, 1 with one sentence for
what you can fix, or 2 for a wrong usage.

MODEL is the same everywhere: a name from `elmore models`, a model or run folder, a zip, or
`weights.hdf5` with `options.json` beside it; by default it is the bundled English model. RECIPE is
the name of a [recipe](recipes.md) or a TOML file. Some recipes and models have the same name:
`elmore pretrain small` trains a model of the size of the published `small`, and `--model small`
loads the published one.
"""
_RECIPES = """# Recipes

Every key of a recipe, with its default. `--set section.key=value` replaces a value; a TOML file has
the sections as tables; `none` stands for no value. Packaged recipes differ from the defaults:
`elmore/recipes` has those of `elmore pretrain` and `elmore finetune`, and
`elmore/tasks/NAME/recipe.toml` those of a task.
"""


def main() -> None:
    """Write both pages."""
    for name, text in pages().items():
        (DOCS / name).write_text(text, "utf-8")


def pages() -> dict[str, str]:
    """Return the text of each page by its name."""
    return {"command-line.md": command_page(), "recipes.md": recipe_page()}


def command_page() -> str:
    """Return a section for each command: what it does, its arguments and its options."""
    parts = [_COMMANDS]
    parts += [_command_section(words, command) for words, command in _commands(cli._root())]
    return "\n".join(parts)


def _commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401 -- of click
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "list_commands"):
            if command.params:  # it is a command, too
                yield (*words, name), command
            yield from _commands(command, (*words, name))
        else:
            yield (*words, name), command


def _command_section(words: tuple[str, ...], command: Any) -> str:  # noqa: ANN401 -- of click
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [
        one for one in command.params if one.param_type_name == "option" and one.name != "help"
    ]
    usage = " ".join(["elmore", *words, *(_metavar(one) for one in arguments), *_required(options)])
    rows = [(f"`{_metavar(one)}`", "", _plain(one.help)) for one in arguments]
    rows += [(_names(one), _default(one), _plain(one.help)) for one in options]
    lines = [f"## elmore {' '.join(words)}", "", _plain(command.help), "", f"`{usage}`", ""]
    lines += ["| | default | |", "|---|---|---|"]
    lines += [f"| {name} | {default} | {text} |" for name, default, text in rows]
    return "\n".join([*lines, ""])


def _metavar(argument: Any) -> str:  # noqa: ANN401 -- of click
    metavar = argument.metavar or argument.name.upper()
    many = argument.nargs == -1 and " " not in metavar
    shown = f"{metavar}..." if many else metavar
    return shown if argument.required or "[" in shown else f"[{shown}]"


def _required(options: list[Any]) -> list[str]:
    return [f"{min(one.opts, key=len)} {one.name.upper()}" for one in options if one.required]


def _names(option: Any) -> str:  # noqa: ANN401 -- of click
    names = sorted(
        [*option.opts, *option.secondary_opts], key=lambda name: (name[:2] == "--", name)
    )
    return ", ".join(f"`{name}`" for name in names)


def _default(option: Any) -> str:  # noqa: ANN401 -- of click
    if isinstance(option.show_default, str):
        return option.show_default
    if option.required:
        return "required"
    if option.default is None or isinstance(option.default, bool):
        return "on" if option.default is True else ""
    return f"`{option.default}`" if str(option.default) else ""


def _plain(text: str | None) -> str:
    """Return a help text as one paragraph of Markdown."""
    return " ".join((text or "").replace(r"\[", "[").replace("|", r"\|").split())


def recipe_page() -> str:
    """Return a table of every key of every recipe, with its type, default and meaning."""
    parts = [
        _RECIPES,
        _recipe_section("elmore pretrain", _keys(PretrainConfig)),
        _recipe_section("elmore finetune", _keys(FinetuneConfig)),
    ]
    shared = list(_keys(TaskConfig))
    parts.append(_recipe_section("elmore task train", shared))
    for name in sorted(registry.TASKS):
        keys = _keys(registry.find_task(name).config_class)
        names = {key for key, *_ in shared}
        own = [row for row in keys if row[0] not in names]
        parts.append(_recipe_section(f"elmore task train {name}", own))
    return "\n".join(parts)


def _recipe_section(title: str, keys: Iterable[Key]) -> str:
    rows = [f"| `{key}` | {kind} | {default} | {text} |" for key, kind, default, text in keys]
    head = [f"## {title}", "", "| key | type | default | |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, ""])


def _keys(config_class: type, prefix: str = "") -> Iterator[Key]:
    hints = typing.get_type_hints(config_class)
    docs = field_docs(config_class)
    for field in dataclasses.fields(config_class):
        kind, optional = _without_none(hints[field.name])
        if dataclasses.is_dataclass(kind):
            if optional:
                default = "`none`" if field.default is None else ""
                text = docs.get(field.name, "")
                yield prefix + field.name, "section, `none`", default, text
            yield from _keys(typing.cast("type", kind), f"{prefix}{field.name}.")
        else:
            text = docs.get(field.name, "")
            yield prefix + field.name, _kind(hints[field.name]), _value(field), text


def _without_none(hint: Any) -> tuple[Any, bool]:  # noqa: ANN401 -- a type
    parts = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    others = [part for part in parts if part is not type(None)]
    return (others[0] if len(others) == 1 else hint), len(others) < len(parts)


def _kind(hint: Any) -> str:  # noqa: ANN401 -- a type
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(f"`{value}`" for value in typing.get_args(hint))
    if isinstance(hint, types.UnionType):
        parts = [part for part in typing.get_args(hint) if part is not type(None)]
        return ", ".join([*map(_kind, parts), "`none`"])
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else "list"


def _value(field: dataclasses.Field) -> str:
    if field.default is not dataclasses.MISSING:
        default = field.default
    elif field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    else:
        return "required"
    if isinstance(default, tuple):
        default = [list(item) if isinstance(item, tuple) else item for item in default]
    shown = (
        "none" if default is None else str(default).lower() if default in (True, False) else default
    )
    return f"`{shown}`" if str(shown) else ""


def field_docs(config_class: type) -> dict[str, str]:
    """Return the docstrings under the fields of a dataclass and of the classes it extends."""
    docs: dict[str, str] = {}
    for owner in reversed(config_class.__mro__):
        if dataclasses.is_dataclass(owner):
            body = ast.parse(inspect.cleandoc(f"\n{inspect.getsource(owner)}")).body[0]
            docs |= _class_docs(typing.cast("ast.ClassDef", body))
    return docs


def _class_docs(body: ast.ClassDef) -> dict[str, str]:
    docs = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
            value = after.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                docs[typing.cast("ast.Name", field.target).id] = _plain(value.value)
    return docs


if __name__ == "__main__":
    main()
