"""Drive the loop: log, evaluate, keep the best, save, stop early or when asked, resume."""

import logging
import math
import operator
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import optim

from elmore.errors import DataError, ElmoreError
from elmore.train import optim as optimizers
from elmore.train.config import TrainConfig
from elmore.train.distributed import Ranks, gathered, own_rows, sum_over
from elmore.train.divergence import LossMean
from elmore.train.loop import Step, Trainable, steps
from elmore.train.runs import Checkpoint, Run

_log = logging.getLogger(__name__)

_MOMENT = 2.0  # seconds
_SILENCE = 5.0  # seconds without a report, where updates are slow


class Report(NamedTuple):
    """Where training stands, now and then."""

    step: int
    num_steps: int
    metrics: dict[str, float]
    """Of the last updates: loss, rate, norm, count, per_second, data_share, gigabytes."""
    scores: dict[str, float]
    """Of the held-out data, where it was looked at."""
    improved: bool
    stopped: str
    """Why it ends before its time; empty while it does not."""
    unit: str
    """Of what `count` and `per_second` are numbers."""


def fit(
    trainable: Trainable,
    config: TrainConfig,
    run: Run,
    *,
    device: torch.device,
    ranks: Ranks,
    resume: bool = False,
) -> Iterator[Report]:
    """Train until the end, and say now and then how it goes. The run folder must have begun."""
    optimizer = optimizers.build(trainable.module, config)
    start = run.restore(trainable.module, optimizer, device) if resume else None
    drive = _Drive(trainable, config, run, optimizer, device, ranks)
    if start is not None:
        drive.best, drive.stale, drive.loss_mean = start.best, start.stale, start.loss_mean
    if drive.tired:  # it ended early, and resuming does not change that
        return
    done = start.step if start else 0
    if sum_over(ranks, torch.tensor(float(done), device=device)).item() != done * ranks.size:
        raise DataError(
            f"{run.folder}: not every process finds the same checkpoints; all machines must see "
            "one run folder"
        )
    if ranks.first:
        run.forget_after(done)
    with deterministic(config), _signals() as asked, _Board(run, done, ranks) as board:
        for report in drive.reports(done, start.carried if start else None, asked):
            if ranks.first:
                board.add(report)
            yield report


@dataclass
class _Drive:
    trainable: Trainable
    config: TrainConfig
    run: Run
    optimizer: optim.Optimizer
    device: torch.device
    ranks: Ranks
    best: float | None = None
    stale: int = 0
    loss_mean: LossMean = field(default_factory=LossMean)

    @property
    def tired(self) -> bool:
        """Whether the score has not become better for too long."""
        return 0 < self.config.patience <= self.stale

    def reports(
        self, done: int, carried: dict[str, torch.Tensor] | None, asked: list[int]
    ) -> Iterator[Report]:
        config = self.config
        num_steps = config.num_steps(self.trainable.batches_per_epoch)
        epoch = max(1, round(self.trainable.batches_per_epoch / config.grad_accum_steps))
        updates = steps(
            self.trainable,
            self.optimizer,
            config,
            num_steps=num_steps,
            device=self.device,
            ranks=self.ranks,
            done=done,
            carried=own_rows(self.ranks, carried) if carried else None,
        )
        pending: list[Step] = []
        begun = time.perf_counter()
        for step in updates:
            pending.append(step)
            now = step.number
            last = now == num_steps
            evaluates = last or now % (config.evaluate_every or epoch) == 0
            saves = last or now % (config.save_every or epoch) == 0
            looks = evaluates or saves or now % config.log_every == 0
            # Several processes must agree to stop: they ask each other only when they all look.
            silent = time.perf_counter() - begun > _SILENCE
            if not looks and (self.ranks.size > 1 or not (asked or silent)):
                continue
            metrics, records = self._look(pending, begun)
            scores, improved = self._evaluate(now) if evaluates else ({}, False)
            if self.ranks.first:
                records[-1] |= {f"valid_{name}": score for name, score in scores.items()}
                self.run.log(records)
            stopped = self._stopped(asked)
            if saves or stopped:
                self._save(step)
            unit = self.trainable.unit
            yield Report(now, num_steps, metrics, scores, improved, stopped, unit)
            if stopped:
                return
            pending, begun = [], time.perf_counter()

    def _look(
        self, pending: list[Step], begun: float
    ) -> tuple[dict[str, float], list[dict[str, float]]]:
        """Read the last updates from the device and check them: a summary, and a line for each."""
        losses = torch.stack([step.loss for step in pending]).tolist()
        norms = torch.stack([step.norm.to(step.loss) for step in pending]).tolist()
        counts = torch.stack([step.count for step in pending]).tolist()
        seconds = time.perf_counter() - begun  # the device has caught up only now
        self._refuse_bad(pending, losses, norms, counts)
        count = sum(counts)
        metrics = {
            "loss": sum(map(operator.mul, losses, counts)) / max(1, count),
            "rate": pending[-1].rate,
            "norm": sum(norms) / len(norms),
            "count": count,
            "per_second": count / seconds,
            "data_share": sum(step.waited for step in pending) / seconds,
        }
        if self.device.type == "cuda":
            metrics["gigabytes"] = torch.cuda.max_memory_allocated(self.device) / 2**30
        records = [
            {"step": s.number, "loss": loss, "rate": s.rate, "norm": norm, "count": number}
            for s, loss, norm, number in zip(pending, losses, norms, counts, strict=True)
        ]
        return metrics, records

    def _refuse_bad(
        self, pending: list[Step], losses: list[float], norms: list[float], counts: list[float]
    ) -> None:
        for step, loss, norm, count in zip(pending, losses, norms, counts, strict=True):
            if not math.isfinite(loss):
                self._refuse(step.number - 1, f"the loss is not finite at update {step.number}")
            self._refuse_divergence(step.number, loss, count)
            if not math.isfinite(norm):
                self._refuse(step.number, f"the gradient is not finite at update {step.number}")

    def _refuse_divergence(self, step: int, loss: float, count: float) -> None:
        factor, window = self.config.divergence_factor, self.config.divergence_window
        if factor is None:
            return
        mean = self.loss_mean.after(step, loss, count, window=window, factor=factor)
        self.loss_mean = mean
        if mean.value > mean.bound(factor):
            self._refuse(
                mean.last_good_step,
                f"the loss diverged: at update {step} its mean over {window} updates is "
                f"{mean.value:.3g}, and {mean.best:.3g} at its best",
                "; if such a loss is expected, raise train.divergence_factor",
            )

    def _refuse(self, since: int, found: str, advice: str = "") -> None:
        """Stop: the weights after update `since` and later are no good, even if they were saved."""
        if self.ranks.first:
            for step in self.run.steps():
                if step >= since:
                    self.run.remove(step)
        raise ElmoreError(
            f"{found}; {self.run.last_good()}; restart with a lower train.lr or train.max_grad_norm"
            f"{advice}; the best model so far, if there is one, is {self.run.best}"
        )

    def _evaluate(self, step: int) -> tuple[dict[str, float], bool]:
        training = self.trainable.module.training
        self.trainable.module.eval()
        try:
            scores = self.trainable.evaluate()
        finally:
            self.trainable.module.train(training)
        metric = self.trainable.metric
        score = scores.get(metric)
        if score is not None:  # rounding may differ between processes; what follows must not
            own = torch.tensor(score if self.ranks.first else 0.0, dtype=torch.float64)
            score = sum_over(self.ranks, own.to(self.device)).item()
        if score is not None and not math.isfinite(score):
            self._refuse(step, f"the {metric} is not finite after update {step}")
        sign = 1 if self.trainable.higher_is_better else -1
        improved = score is None or self.best is None or sign * score > sign * self.best
        if improved:
            self.best, self.stale = score, 0
            if self.ranks.first:
                self._keep(scores)
        else:
            self.stale += 1
        return scores, improved

    def _keep(self, scores: dict[str, float]) -> None:
        try:
            self.trainable.save(self.run.best, scores)
        except (OSError, ElmoreError) as error:
            raise ElmoreError(f"{error}; {self.run.last_good()}") from error

    def _stopped(self, asked: list[int]) -> str:
        number = asked[0] if asked else 0
        highest = sum_over(self.ranks, torch.tensor(float(number), device=self.device))
        if highest.item():
            return signal.Signals(number or signal.SIGTERM).name
        if self.tired:
            return f"no better {self.trainable.metric} in {self.stale} evaluations"
        return ""

    def _save(self, step: Step) -> None:
        carried = gathered(self.ranks, step.carried)
        if self.ranks.first:
            checkpoint = Checkpoint(step.number, self.best, self.stale, self.loss_mean, carried)
            self.run.save(
                self.trainable.module, self.optimizer, checkpoint, keep=self.config.keep_checkpoints
            )


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Note SIGTERM and SIGINT instead of dying of them.

    Schedulers and torchrun pass the same signal on more than once; a person who presses Ctrl-C
    again, a moment later, means it.
    """
    asked: list[int] = []
    before: dict[int, Any] = {}
    since = math.inf

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal since
        if number == signal.SIGINT and time.monotonic() - since > _MOMENT:
            signal.signal(number, before[number])
            signal.raise_signal(number)
        since = min(since, time.monotonic())
        asked.append(number)

    with suppress(ValueError):  # only the main thread hears signals
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, note)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def deterministic(config: TrainConfig) -> Iterator[None]:
    """Have torch do the same each time, where the config asks for it."""
    before = torch.are_deterministic_algorithms_enabled()
    if config.deterministic:  # what cuBLAS asks for, and reads when it is first used
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(config.deterministic or before)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


class _Board:
    """TensorBoard's file, where the package is installed."""

    def __init__(self, run: Run, done: int, ranks: Ranks) -> None:
        self.writer: Any = None
        if not ranks.first:
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            _log.info("tensorboard is not installed; metrics.jsonl has the numbers")
            return
        self.writer = SummaryWriter(str(run.folder), purge_step=done + 1 if done else None)

    def __enter__(self) -> "_Board":
        return self

    def __exit__(self, *error: object) -> None:
        if self.writer is not None:
            self.writer.close()

    def add(self, report: Report) -> None:
        if self.writer is None:
            return
        for group, values in (("train", report.metrics), ("valid", report.scores)):
            for name, value in values.items():
                self.writer.add_scalar(f"{group}/{name}", value, report.step)
