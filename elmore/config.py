"""Build frozen dataclasses from TOML or JSON, with strict keys and types.

A recipe contains only what differs from the defaults of the fields; runs save it with all defaults
filled in. `section.key=value` on the command line overrides a recipe.
"""

import dataclasses
import difflib
import functools
import math
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union

from elmore import strict_json
from elmore.errors import ConfigError, DataError, ElmoreError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")

NONE = "none"  # TOML has no null
_type_hints = functools.cache(typing.get_type_hints)

_TRAIN_KEYS = {
    "rate": "lr",
    "clip": "max_grad_norm",
    "accumulate": "grad_accum_steps",
    "keep": "keep_checkpoints",
    "warmup": "warmup_steps",
    "initial_accumulator": "adagrad_init",
}
RENAMED_KEYS: dict[str, dict[str, str]] = {
    "train": _TRAIN_KEYS,
    "softmax_train": _TRAIN_KEYS,
    "stream": {
        "rows": "batch_size",
        "steps": "unroll_steps",
        "reset": "reset_probability",
        "block": "shuffle_block",
    },
    "elmo": {"where": "insert_at"},
    "characters": {"width": "widths"},
}
"""Keys of earlier versions by section, old to new; files that have them are still read."""

LISTED_KEYS = (("characters", "widths"),)
"""Keys that had one number in earlier versions, and have a list now."""

RENAMED_VALUES: dict[tuple[str, str], dict[str, str]] = {
    ("data", "unbalanced"): {"refuse": "error", "drop": "skip"},
}
"""Values of earlier versions by section and key, old to new."""


def read_recipe(cls: type[Config], path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a TOML recipe, apply overrides, and build the config."""
    try:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such recipe") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not a readable TOML file ({error})") from error
    return build(cls, apply_overrides(rename_old_keys(table, str(path)), overrides), str(path))


def rename_old_keys(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a recipe in which keys and values of earlier versions have their present names."""
    result = dict(table)
    for section, names in RENAMED_KEYS.items():
        values = result.get(section)
        if isinstance(values, dict):
            result[section] = {names.get(key, key): value for key, value in values.items()}
            if len(result[section]) < len(values):
                key = next(key for key in names if key in values and names[key] in values)
                raise ConfigError(
                    f"{where}: {section}: {key!r} is the old name of {names[key]!r}; keep one"
                )
    for section, key in LISTED_KEYS:
        settings = result.get(section)
        if isinstance(settings, dict) and type(settings.get(key)) is int:
            result[section] = {**settings, key: [settings[key]]}
    for (section, key), values in RENAMED_VALUES.items():
        settings = result.get(section)
        if isinstance(settings, dict) and isinstance(settings.get(key), str):
            result[section] = {**settings, key: values.get(settings[key], settings[key])}
    return result


def apply_overrides(table: Mapping[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Apply `section.key=value` strings; values are TOML, and bare words are strings."""
    result = {
        key: dict(value) if isinstance(value, dict) else value for key, value in table.items()
    }
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        *sections, key = name.strip().split(".")
        if not equals or not key:
            raise ConfigError(f"{assignment!r} is not of the form section.key=value")
        target = result
        for section in sections:
            target = target.setdefault(section, {})
            if not isinstance(target, dict):
                raise ConfigError(f"{assignment!r}: {section!r} is a value, not a section")
        target[key] = _toml_value(value.strip(), assignment)
    return result


def check_format(
    table: Mapping[str, Any],
    newest: int,
    where: str,
    *,
    default: int | None = None,
    error: type[ElmoreError] = DataError,
) -> None:
    """Raise `error` unless the format number is known; `default` is for files without one."""
    number = table.get("format", default)
    if type(number) is not int or number < 1:
        raise error(f"{where}: format is {number!r}, expected a number from 1 to {newest}")
    if number > newest:
        raise error(
            f"{where}: format {number} is newer than this elmore reads ({newest}); upgrade elmore"
        )


def read_json(path: Path) -> dict[str, Any]:
    """Read a file with one JSON object."""
    try:
        data = strict_json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: not a readable JSON file ({error})") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected a JSON object, found {type(data).__name__}")
    return data


def has_format(path: Path) -> bool:
    """Return whether a JSON file has a format number, as the files of elmore do."""
    try:
        number = read_json(path).get("format")
    except ConfigError:
        return False
    return type(number) is int and number >= 1


def suggest(name: str, known: Iterable[str], renamed: str | None = None) -> str:
    """Return "did you mean ...?" with the new name or the closest known one, or an empty string."""
    close = [renamed] if renamed else difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def _toml_value(value: str, assignment: str) -> Any:  # noqa: ANN401 -- any TOML value
    try:
        table = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        return value
    if len(table) > 1:
        raise ConfigError(f"{assignment!r} has more than one setting; pass each on its own")
    return table["value"]


def build(
    cls: type[Config], data: object, where: str, *, unknown: Literal["refuse", "ignore"] = "refuse"
) -> Config:
    """Build a `cls` from plain data; error messages start with `where`.

    Unknown keys raise ConfigError, or are ignored, here and in every section.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where}: expected a section of keys, found {short_repr(data)}")
    convert = _Converter(unknown)
    hints = _type_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    values = {}
    for key, value in data.items():
        if key in names:
            values[key] = convert(hints[key], value, f"{where}: {key}")
        elif unknown == "refuse":
            section = RENAMED_KEYS.get(where.rpartition(": ")[2], {})
            hint = (
                suggest(str(key), names, section.get(str(key))) or f"known keys: {', '.join(names)}"
            )
            raise ConfigError(f"{where}: unknown key {short_repr(key)}; {hint}")
    missing = [
        field.name
        for field in dataclasses.fields(cls)
        if field.name not in values
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigError(f"{where}: missing key {missing[0]!r}")
    try:
        return cls(**values)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


class _Converter:
    """Converts plain data to the annotated type of a field."""

    def __init__(self, unknown: Literal["refuse", "ignore"]) -> None:
        self._unknown: Literal["refuse", "ignore"] = unknown

    def __call__(self, hint: Any, value: object, where: str) -> Any:  # noqa: ANN401 -- any annotated type
        origin, options = typing.get_origin(hint), typing.get_args(hint)
        if origin in (Union, types.UnionType):
            return self._optional(options, value, where)
        if dataclasses.is_dataclass(hint):
            return build(typing.cast("type", hint), value, where, unknown=self._unknown)
        if hint in (int, float):
            return _number(hint, value, where)
        if origin is tuple and isinstance(value, list | tuple):
            return self._items(options, value, where)
        if origin is dict and isinstance(value, dict):
            return {k: self(options[1], v, f"{where}: {short_repr(k)}") for k, v in value.items()}
        if value in options if origin is Literal else type(value) is hint:
            return value
        raise ConfigError(f"{where}: expected {_type_name(hint)}, found {short_repr(value)}")

    def _optional(self, options: tuple, value: object, where: str) -> Any:  # noqa: ANN401
        (hint,) = (option for option in options if option is not types.NoneType)
        return None if value is None or value == NONE else self(hint, value, where)

    def _items(self, options: tuple, values: Sequence, where: str) -> tuple:
        if options[-1] is Ellipsis:
            options = options[:1] * len(values)
        if len(options) != len(values):
            raise ConfigError(
                f"{where}: expected {len(options)} items, found {short_repr(list(values))}"
            )
        pairs = zip(options, values, strict=True)
        return tuple(self(hint, item, f"{where}[{i}]") for i, (hint, item) in enumerate(pairs))


def _type_name(hint: Any) -> str:  # noqa: ANN401 -- any annotated type
    origin = typing.get_origin(hint)
    if origin is Literal:
        return f"one of {', '.join(map(repr, typing.get_args(hint)))}"
    return "list" if origin is tuple else (origin or hint).__name__


def _number(hint: type[int] | type[float], value: object, where: str) -> float:
    """Convert an int or finite float that fits into 64 bits."""
    types_ = (int,) if hint is int else (int, float)
    if type(value) not in types_:  # not isinstance: True is an int
        raise ConfigError(f"{where}: expected {hint.__name__}, found {short_repr(value)}")
    number = typing.cast("float", value)
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise ConfigError(f"{where}: expected a 64-bit number, found {short_repr(value)}")
    if not math.isfinite(number):
        raise ConfigError(f"{where}: expected a finite number, found {value}")
    return hint(number)


def short_repr(value: object) -> str:
    """Return the repr of a value for a message, truncated if long."""
    if type(value) is int and value.bit_length() > 128:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def as_dict(config: Any) -> dict[str, Any]:  # noqa: ANN401 -- any dataclass
    """Return plain data that `build` accepts, with lists for tuples."""

    def plain(value: object) -> object:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, list | tuple) else value

    return typing.cast("dict", plain(dataclasses.asdict(config)))
