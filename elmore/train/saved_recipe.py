"""The recipe of a run as it is saved, and whether a run may be resumed with another."""

import json
from pathlib import Path
from typing import Any

from elmore import atomic, config, strict_json
from elmore.errors import ConfigError

FORMAT = 11
"""Of recipe.json and of checkpoints; docs/formats.md says what each number added."""

# A run may be resumed although its recipe lacks these keys, which came later.
_NEW_KEYS = {"divergence_factor", "divergence_window", "plateau_patience", "warmup_fraction"}
_NEW_KEYS |= {"name", "language", "licence", "data", "source", "training"}  # of the card
_NEW_KEYS |= {"weight"}  # of distillation, which needs a teacher that earlier runs did not have
_NEW_KEYS |= {"init_sha256", "model_sha256", "init_softmax_sha256", "model_softmax_sha256"}
# What runs did whose recipes lack these keys.
_EARLIER_VALUES = {
    "stream.min_batches": 0,
    "distillation.soft_targets": 0.0,
    "freeze_bilm": False,
    "softmax.tail_widths": [],
    "softmax.tail_bits": 8,
}
_PARENT = "parent"  # the description of the initial model, whose sha256s tell whether it is another
_LENGTHS = ("epochs", "steps")


def check_resumable(path: Path, new: dict[str, Any]) -> bool:
    """Return whether a recipe asks for a longer training than the saved one, else for the same.

    Raises:
        ConfigError: It is another recipe in any other way.
    """
    old = config.read_json(path)
    config.check_format(old, FORMAT, str(path), default=1)  # the first had no number
    old = {key: value for key, value in old.items() if key not in ("format", _PARENT)}
    before = _flatten(config.rename_old_keys(old, str(path)))
    after = _flatten({k: v for k, v in json.loads(json.dumps(new)).items() if k != _PARENT})
    for key, value in _EARLIER_VALUES.items():
        before.setdefault(key, value)
        after.setdefault(key, value)
    added = {k for k in after if k not in before and k.rpartition(".")[2] in _NEW_KEYS}
    keys = [k for k in {**before, **after} if before.get(k) != after.get(k) and k not in added]
    other = [k for k in keys if not _is_longer(k, before.get(k), after.get(k))]
    if other:
        changes = [(key, before.get(key), after.get(key)) for key in sorted(other)[:5]]
        differences = ", ".join(
            f"{k[:80]} {config.short_repr(a)} -> {config.short_repr(b)}" for k, a, b in changes
        )
        raise ConfigError(
            f"{path}: this run has another recipe ({differences}); resume with the same one, with "
            "--set where defaults have changed, or start a new run in another folder"
        )
    return bool(keys)


def _is_longer(key: str, before: object, after: object) -> bool:
    return (
        key in {f"train.{name}" for name in _LENGTHS}
        and isinstance(before, int | float)
        and isinstance(after, int | float)
        and after > before
    )


def extend(path: Path, new: dict[str, Any]) -> None:
    """Save the length of a longer training."""
    saved = config.read_json(path)
    saved["train"] |= {name: new["train"][name] for name in _LENGTHS}
    atomic.write(path, strict_json.encode(saved, indent=2))


def _flatten(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            leaves |= _flatten(value, f"{prefix}{key}.")
        else:
            leaves[prefix + key] = value
    return leaves
