"""The run folder: the resolved recipe, metrics.jsonl, checkpoints that are complete or absent.

RUN/recipe.json             the recipe with every default filled in
RUN/metrics.jsonl           one line per update, each once, also after a kill
RUN/events.out.tfevents.…   the same for TensorBoard, if it is installed
RUN/checkpoints/step-…      everything needed to resume (`checkpoint.py`)
RUN/best                    the model with the best score so far
RUN/lock                    the process that trains there now
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError
from torch import nn, optim

from elmore import atomic, config, lock, strict_json
from elmore.errors import DataError
from elmore.train import saved_recipe
from elmore.train.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from elmore.train.saved_recipe import FORMAT
from elmore.train.weight_average import WeightAverage

_CHECKPOINT = re.compile(r"step-(\d+)")
_LOCK = "lock"
_DISPOSABLE = re.compile(
    r"recipe\.json(\.new)?|metrics\.jsonl|events\.out\.tfevents.*"
    r"|\.(recipe\.json|metrics\.jsonl)\.[0-9a-f]{16}\.new"
)
VALID = "valid_"
"""Prefix of the scores on held-out data in metrics.jsonl."""


class Run:
    """One run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recipe = folder / "recipe.json"
        self.metrics = folder / "metrics.jsonl"
        self.best = folder / "best"
        self.checkpoints = folder / "checkpoints"
        self._lock: lock.Lock | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock, so that another process can train there."""
        if self._lock is not None:
            self._lock.release()
        self._lock = None

    def create_or_resume(self, recipe: dict[str, Any], *, resume: bool) -> None:
        """Lock the folder, and create the run or check that it has the same recipe.

        Raises:
            DataError: The folder is in use, not empty (without `resume`), or not a run.
            ConfigError: The run to resume has another recipe.
        """
        self._check_folder(resume=resume)
        self._lock = self._lock or lock.acquire(self.folder / _LOCK)
        try:
            self._check_folder(resume=resume)  # another process may have released it just now
            if resume:
                if saved_recipe.check_resumable(self.recipe, recipe):
                    saved_recipe.extend(self.recipe, recipe)
                self._clean_partial()
            else:
                self.metrics.unlink(missing_ok=True)
                saved = {"format": FORMAT, **recipe}
                atomic.write(self.recipe, strict_json.encode(saved, indent=2))
        except BaseException:
            self.close()
            raise

    def _check_folder(self, *, resume: bool) -> None:
        try:
            str(self.folder).encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{self.folder}: the path is not UTF-8, so safetensors could not read checkpoints; "
                "pass another name"
            ) from error
        if resume and not self.recipe.is_file():
            raise DataError(f"{self.folder}: there is no run to resume; omit --resume")
        if not resume and self.folder.exists() and not self._is_disposable():
            raise DataError(
                f"{self.folder} exists and is not empty; pass --resume to continue it, or choose "
                "another folder"
            )

    def _is_disposable(self) -> bool:
        """Return whether a run failed before it saved anything."""
        names = {path.name for path in self.folder.iterdir()} - {_LOCK}
        if names & {self.recipe.name, self.metrics.name} and not config.has_format(self.recipe):
            return False  # elmore did not write it
        return all(map(_DISPOSABLE.fullmatch, names))

    def read_recipe(self) -> dict[str, Any]:
        """Return the saved recipe; empty if there is none."""
        return config.read_json(self.recipe) if self.recipe.is_file() else {}

    @property
    def limits_warmup(self) -> bool:
        """Whether it began with `train.warmup_fraction`, which runs before format 6 lack."""
        recipe = self.read_recipe()
        return recipe.get("format", 1) >= 6 or "warmup_fraction" in recipe.get("train", {})

    def checkpoint_steps(self) -> list[int]:
        """Return the update numbers of the checkpoints, in order."""
        if not self.checkpoints.is_dir():
            return []
        matches = (_CHECKPOINT.fullmatch(path.name) for path in self.checkpoints.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def save_checkpoint(
        self,
        module: nn.Module,
        optimizer: optim.Optimizer,
        checkpoint: Checkpoint,
        average: WeightAverage | None = None,
        *,
        keep: int,
    ) -> Path:
        """Write a checkpoint, then delete all but the last `keep`."""
        path = self._checkpoint_path(checkpoint.progress.step)
        self.remove_checkpoint(checkpoint.progress.step)
        try:
            write_checkpoint(path, module, optimizer, checkpoint, average)
        except (OSError, SafetensorError) as error:  # a full disk raises either
            raise DataError(
                f"{path}: could not be written ({error}); {self.last_checkpoint_hint()}"
            ) from error
        for step in self.checkpoint_steps()[:-keep]:
            self.remove_checkpoint(step)
        return path

    def remove_checkpoint(self, step: int) -> None:
        """Delete a checkpoint, if there is one and the disk permits it.

        It is deleted atomically: without its optimizer it would be taken for a warm restart.
        """
        path = self._checkpoint_path(step)
        with contextlib.suppress(OSError):
            if os.path.lexists(path):
                atomic.remove(path)

    def last_checkpoint_hint(self) -> str:
        """Return a clause for error messages that names the last checkpoint."""
        steps = self.checkpoint_steps()
        if not steps:
            return "there is no good checkpoint"
        return f"the last good checkpoint is {self._checkpoint_path(steps[-1])}"

    def load_checkpoint(
        self,
        module: nn.Module,
        optimizer: optim.Optimizer,
        device: torch.device,
        average: WeightAverage | None = None,
    ) -> Checkpoint | None:
        """Load the newest checkpoint into a module, its optimizer and its average, if there is one.

        See `read_checkpoint` for files that are absent or damaged.
        """
        steps = self.checkpoint_steps()
        if not steps:
            return None
        path = self._checkpoint_path(steps[-1])
        return read_checkpoint(path, steps[-1], module, optimizer, device, average)

    def append_metrics(self, records: list[dict[str, Any]]) -> None:
        """Append lines to metrics.jsonl."""
        with self.metrics.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)

    def truncate_metrics(self, step: int) -> None:
        """Drop the lines of updates after `step`, which will be made again."""
        if not self.metrics.is_file():
            return
        lines = [line + "\n" for line, record in self.read_metrics() if record["step"] <= step]
        atomic.write(self.metrics, "".join(lines).encode())

    def read_metrics(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the lines of metrics.jsonl with their records, which have at least step and loss.

        A last line that a kill cut short is left out.
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
            yield line, _check_record(record, where)

    def _clean_partial(self) -> None:
        """Remove what a killed process left half written."""
        atomic.remove_leftovers(self.best)
        for path in self.checkpoints.glob(".step-*"):
            atomic.remove_leftovers(path.with_name(path.name.split(".")[1]))

    def _checkpoint_path(self, step: int) -> Path:
        return self.checkpoints / f"step-{step:08}"


def _check_record(record: object, where: str) -> dict[str, Any]:
    if not isinstance(record, dict) or not {"step", "loss"} <= record.keys():
        raise DataError(
            f"{where}: expected a JSON object with step and loss, found {str(record)[:40]!r}"
        )
    for name, value in record.items():
        if name in ("step", "loss") or name.startswith(VALID):
            types = (int,) if name == "step" else (int, float)
            if type(value) not in types or (type(value) is int and abs(value) >= 2**63):
                raise DataError(f"{where}: {name}: expected a number, found {str(value)[:40]!r}")
    return record
