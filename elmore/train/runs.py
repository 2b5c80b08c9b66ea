"""The run folder: the resolved recipe, metrics.jsonl, checkpoints that are complete or absent.

RUN/recipe.json             every value that was used
RUN/metrics.jsonl           one line an update, each once, also after a kill
RUN/events.out.tfevents.…   the same for TensorBoard, where it is installed
RUN/checkpoints/step-…      all it takes to go on
RUN/best                    the model with the best score so far
RUN/lock                    while a process trains there: which one
"""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn, optim

from elmore import atomic, config, lock, strict_json
from elmore.errors import ConfigError, DataError
from elmore.train.divergence import LossMean

FORMAT = 3  # 1 and 2: keys of the recipe had other names
_NEW_KEYS = {"divergence_factor", "divergence_window"}  # of format 2, in a section of training
_NAME = re.compile(r"step-(\d+)")
_LOCK = "lock"
_FILES = ("model", "optimizer", "carried")
_WORTHLESS = re.compile(
    r"recipe\.json(\.new)?|metrics\.jsonl|events\.out\.tfevents.*"
    r"|\.(recipe\.json|metrics\.jsonl)\.[0-9a-f]{16}\.new"
)
_LEFT_BY_0_1 = re.compile(r"\.(best|step-\d+)\.[a-z0-9_]{8}")
VALID = "valid_"
"""What the scores of held-out data begin with in metrics.jsonl."""


class Checkpoint(NamedTuple):
    """A place to go on from."""

    step: int
    best: float | None
    stale: int
    """Evaluations since the best one."""
    loss_mean: LossMean
    carried: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class _State:
    """state.json: what of a checkpoint is no tensor."""

    format: int
    step: int
    best: float | None
    stale: int
    loss_mean: LossMean = field(default_factory=LossMean)


class Run:
    """One run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metrics = folder / "metrics.jsonl"
        self.best = folder / "best"
        self.checkpoints = folder / "checkpoints"
        self._lock: lock.Lock | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process train there."""
        if self._lock is not None:
            self._lock.release()
        self._lock = None

    def begin(self, recipe: dict[str, Any], *, resume: bool) -> None:
        """Make a new run, or come back to the one that is there: it must be of the same recipe.

        Until `close` no other process can begin there.
        """
        path = self.folder / "recipe.json"
        self._refuse_folder(resume=resume)
        self._lock = self._lock or lock.acquire(self.folder / _LOCK)
        try:
            self._refuse_folder(resume=resume)  # of another process that has just let go of it
            if resume:
                _refuse_difference(_recipe(path), recipe, path)
                self._sweep()
            else:
                self.metrics.unlink(missing_ok=True)
                atomic.write(path, _json({"format": FORMAT, **recipe}))
        except BaseException:
            self.close()
            raise

    def _refuse_folder(self, *, resume: bool) -> None:
        if resume and not (self.folder / "recipe.json").is_file():
            raise DataError(f"{self.folder}: no run to resume there; leave --resume away")
        if not resume and self.folder.exists() and not self._saved_nothing():
            raise DataError(
                f"{self.folder} exists and is not empty; pass --resume to go on with it, or name "
                "another folder"
            )

    def _saved_nothing(self) -> bool:
        """Tell a run that failed before it had anything to lose."""
        names = {path.name for path in self.folder.iterdir()} - {_LOCK}
        replaced = names & {"recipe.json", self.metrics.name}
        if replaced and not config.says_format(self.folder / "recipe.json"):
            return False  # they are somebody else's
        return all(map(_WORTHLESS.fullmatch, names))

    def steps(self) -> list[int]:
        """Give the updates after which a checkpoint was saved, first to last."""
        if not self.checkpoints.is_dir():
            return []
        matches = (_NAME.fullmatch(path.name) for path in self.checkpoints.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def save(
        self, module: nn.Module, optimizer: optim.Optimizer, checkpoint: Checkpoint, *, keep: int
    ) -> Path:
        """Write a checkpoint, then let the oldest go."""
        place = self._place(checkpoint.step)
        shutil.rmtree(place, ignore_errors=True)
        tensors = {
            "model": module.state_dict(),
            "optimizer": _flat(optimizer),
            "carried": checkpoint.carried,
        }
        state = {
            "format": FORMAT,
            **checkpoint._asdict(),
            "loss_mean": asdict(checkpoint.loss_mean),
        }
        state.pop("carried")
        try:
            with atomic.folder(place) as folder:
                for name in _FILES:
                    plain = {k: v.detach().contiguous().cpu() for k, v in tensors[name].items()}
                    save_file(plain, folder / f"{name}.safetensors")
                (folder / "state.json").write_bytes(_json(state))
        except (OSError, SafetensorError) as error:  # a full disk comes as either
            raise DataError(
                f"{place}: could not be written ({error}); {self.last_good()}"
            ) from error
        for step in self.steps()[:-keep]:
            self.remove(step)
        return place

    def remove(self, step: int) -> None:
        """Let a checkpoint go that turned out to be no good."""
        shutil.rmtree(self._place(step), ignore_errors=True)

    def last_good(self) -> str:
        """Say from where one can go on."""
        steps = self.steps()
        if not steps:
            return "there is no good checkpoint"
        return f"the last good checkpoint is {self._place(steps[-1])}"

    def restore(
        self, module: nn.Module, optimizer: optim.Optimizer, device: torch.device
    ) -> Checkpoint | None:
        """Put the newest checkpoint into a module and its optimiser; None where there is none."""
        steps = self.steps()
        if not steps:
            return None
        place = self._place(steps[-1])
        try:
            model, state, carried = (load_file(place / f"{name}.safetensors") for name in _FILES)
            values = config.read_json(place / "state.json")
            module.load_state_dict(model)
            optimizer.load_state_dict(_nested(optimizer, state))
        except (OSError, SafetensorError, RuntimeError, ValueError, LookupError) as error:
            raise DataError(
                f"{place}: not a readable checkpoint ({error}); remove it to go on from an "
                "earlier one"
            ) from error
        config.check_format(values, FORMAT, str(place))
        if values["format"] == 1:
            values.pop("first_loss", None)  # a mean of the loss starts anew
        found = config.build(_State, values, str(place / "state.json"))
        if found.step != steps[-1]:
            raise DataError(f"{place}: its state.json is of update {found.step}; remove it")
        on_device = {name: tensor.to(device) for name, tensor in carried.items()}
        return Checkpoint(found.step, found.best, found.stale, found.loss_mean, on_device)

    def log(self, records: list[dict[str, Any]]) -> None:
        """Add lines to metrics.jsonl."""
        with self.metrics.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)

    def forget_after(self, step: int) -> None:
        """Drop the lines of updates that a checkpoint does not know of: they come again."""
        if not self.metrics.is_file():
            return
        kept = [line + "\n" for line, record in self.records() if record["step"] <= step]
        atomic.write(self.metrics, "".join(kept).encode())

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Give the lines of metrics.jsonl and what they say: a step, and numbers by their names.

        A kill may have cut the last line short: that one is left out.
        """
        lines = self.metrics.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, start=1):
            where = f"{self.metrics}: line {number}"
            try:
                record = strict_json.parse(line, where)
            except DataError:
                if number == len(lines):
                    return
                raise
            yield line, _checked_record(record, where)

    def _sweep(self) -> None:
        """Remove what was being written when the run was killed."""
        atomic.sweep(self.best)
        for path in self.checkpoints.glob(".step-*"):
            atomic.sweep(path.with_name(path.name.split(".")[1]))
        for folder in (*self.folder.glob(".best.*"), *self.checkpoints.glob(".step-*")):
            if _LEFT_BY_0_1.fullmatch(folder.name):
                _sweep_0_1(folder, self.best)

    def _place(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:08}"


def _sweep_0_1(folder: Path, best: Path) -> None:
    """Remove what a killed run of elmore 0.1 was writing."""
    if not {path.name for path in folder.iterdir()} <= {"new", "old"}:
        return
    if (folder / "old").exists() and not best.exists():  # the kill came between two renames
        (folder / "old").rename(best)
    shutil.rmtree(folder, ignore_errors=True)


def _checked_record(record: object, where: str) -> dict[str, Any]:
    if not isinstance(record, dict) or not {"step", "loss"} <= record.keys():
        raise DataError(
            f"{where}: expected a JSON object with step and loss, found {str(record)[:40]!r}"
        )
    for name, value in record.items():
        if name in ("step", "loss") or name.startswith(VALID):
            kinds = (int,) if name == "step" else (int, float)
            if type(value) not in kinds or (type(value) is int and abs(value) >= 2**63):
                raise DataError(f"{where}: {name}: expected a number, found {str(value)[:40]!r}")
    return record


def _json(data: dict[str, Any]) -> bytes:
    return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()


def _recipe(path: Path) -> dict[str, Any]:
    found = config.read_json(path)
    config.check_format(found, FORMAT, str(path), unsaid=1)  # the first runs did not say it
    found.pop("format", None)
    return config.rename_old_keys(found, str(path))


def _refuse_difference(old: dict[str, Any], new: dict[str, Any], path: Path) -> None:
    before, after = _leaves(old), _leaves(json.loads(_json(new)))
    # A run of format 1 goes on, though nothing in its recipe tells when it diverges.
    later = {k for k in after if k not in before and k.rpartition(".")[2] in _NEW_KEYS}
    keys = [k for k in {**before, **after} if before.get(k) != after.get(k) and k not in later]
    if keys:
        changes = [(key, before.get(key), after.get(key)) for key in sorted(keys)[:5]]
        shown = ", ".join(f"{k[:80]} {config.shown(a)} -> {config.shown(b)}" for k, a, b in changes)
        raise ConfigError(
            f"{path}: this run has another recipe ({shown}); resume with the same one, or start "
            "anew in another folder"
        )


def _leaves(table: dict[str, Any], before: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            leaves |= _leaves(value, f"{before}{key}.")
        else:
            leaves[before + key] = value
    return leaves


def _flat(optimizer: optim.Optimizer) -> dict[str, Tensor]:
    """Name an optimiser's tensors `number of the weight.what`."""
    return {
        f"{number}.{name}": torch.as_tensor(value)
        for number, values in optimizer.state_dict()["state"].items()
        for name, value in values.items()
    }


def _state_names(optimizer: optim.Optimizer, group: dict[str, Any]) -> set[str]:
    """Name what an optimizer keeps of each weight of a group."""
    if isinstance(optimizer, optim.Adagrad):
        return {"step", "sum"}
    return {"step", "momentum"} if group.get("orthogonal") else {"step", "exp_avg", "exp_avg_sq"}


def _nested(optimizer: optim.Optimizer, flat: dict[str, Tensor]) -> dict[str, Any]:
    groups = [(group, weight) for group in optimizer.param_groups for weight in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in flat.items():
        number, _, name = key.partition(".")
        shape = () if name == "step" else groups[int(number)][1].shape
        if value.shape != shape or not value.is_floating_point():
            raise ValueError(f"{key} of the optimizer is {value.dtype} of {tuple(value.shape)}")
        state.setdefault(int(number), {})[name] = value
    for number, values in state.items():
        if values.keys() != _state_names(optimizer, groups[number][0]):
            raise ValueError(f"weight {number} of the optimizer has {', '.join(values)[:80]}")
    return {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
