"""Run the training loop: log, evaluate, keep the best model, save checkpoints, stop, resume."""

import logging
import math
import operator
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import optim

from elmore.errors import DataError, ElmoreError
from elmore.train import schedule
from elmore.train.checkpoint import Checkpoint, Progress
from elmore.train.config import TrainConfig
from elmore.train.distributed import DistEnv, all_reduce_sum, gather_rows, scatter_rows
from elmore.train.loop import State, Step, Trainable, run_steps
from elmore.train.optimizers import build_optimizer
from elmore.train.runs import VALID, Run
from elmore.train.signals import catch_signals
from elmore.train.weight_average import WeightAverage

_log = logging.getLogger(__name__)

_MAX_SILENCE = 5.0  # seconds between reports, if updates are slow


class Report(NamedTuple):
    """Progress of a training run."""

    step: int
    num_steps: int
    metrics: dict[str, float]
    """Since the last report: loss, lr, grad_norm, count, per_second, data_fraction, max_gib, and
    auxiliary_loss if there is such a loss."""
    scores: dict[str, float]
    """Scores on held-out data, if it was evaluated."""
    improved: bool
    stop_reason: str
    """Why training stops early; empty otherwise."""
    unit: str
    """What `count` and `per_second` count."""


def fit(
    trainable: Trainable,
    config: TrainConfig,
    run: Run,
    *,
    device: torch.device,
    dist_env: DistEnv,
    resume: bool = False,
) -> Iterator[Report]:
    """Train to the end and yield reports; `run` must have been created or resumed."""
    if resume and not run.limits_warmup:  # begun before there was a limit: keep its schedule
        config = replace(config, warmup_fraction=None)
    optimizer = build_optimizer(trainable.module, config)
    average = WeightAverage(trainable.module, config.ema_decay) if config.ema_decay else None
    checkpoint = (
        run.load_checkpoint(trainable.module, optimizer, device, average) if resume else None
    )
    progress, state = checkpoint or (Progress(step=0, best_score=None, evals_since_best=0), {})
    trainer = _Trainer(trainable, config, run, optimizer, average, device, dist_env, progress)
    if trainer.should_stop_early:  # it stopped before, and resuming does not change that
        return
    start_step = progress.step
    total = all_reduce_sum(dist_env, torch.tensor(float(start_step), device=device)).item()
    if total != start_step * dist_env.world_size:
        raise DataError(
            f"{run.folder}: the processes see different checkpoints; all machines must share "
            "one run folder"
        )
    if dist_env.is_main:
        trainer.log_short_run()
        if resume:
            trainer.log_restart(start_step)
        run.truncate_metrics(start_step)
    with (
        deterministic(config),
        catch_signals() as received,
        _TensorBoard(run, start_step, dist_env) as board,
    ):
        for report in trainer.reports(start_step, state, received):
            if dist_env.is_main:
                board.add(report)
            yield report


@dataclass
class _Trainer:
    """One training run: what it trains, and how far it has come."""

    trainable: Trainable
    config: TrainConfig
    run: Run
    optimizer: optim.Optimizer
    average: WeightAverage | None
    device: torch.device
    dist_env: DistEnv
    progress: Progress
    """`step` is that of the last checkpoint."""

    @property
    def num_steps(self) -> int:
        return self.config.num_steps(self.trainable.batches_per_epoch)

    def log_short_run(self) -> None:
        """Warn of a run that is shorter than the warm-up of its recipe."""
        if self.num_steps < self.config.warmup_steps:
            _log.warning(
                "%s: the run has only %d updates (train.warmup_steps alone is %d), of which the "
                "first %d warm up; raise train.epochs, use smaller batches, or train on more data",
                self.run.folder,
                self.num_steps,
                self.config.warmup_steps,
                schedule.warmup_steps(self.config, self.num_steps),
            )

    def log_restart(self, start_step: int) -> None:
        """Log what a resumed run does not continue from."""
        if start_step == self.progress.restart_step and start_step < self.num_steps:
            _log.warning(
                "%s: the checkpoint of update %d has no optimizer.safetensors: the optimizer "
                "starts fresh, and the learning rate warms up over %d updates",
                self.run.folder,
                start_step,
                schedule.restart_warmup(start_step, self.num_steps),
            )
        elif start_step == 0 and self.run.best.exists():
            _log.warning(
                "%s: there is no checkpoint, so training starts at update 0; to start from the "
                "weights of %s, pass them to --init with another run folder",
                self.run.folder,
                self.run.best,
            )

    @property
    def should_stop_early(self) -> bool:
        return 0 < self.config.patience <= self.progress.evals_since_best

    def reports(self, start_step: int, state: State, received: list[int]) -> Iterator[Report]:
        config = self.config
        num_steps = self.num_steps
        batches = self.trainable.batches_per_epoch
        steps_per_epoch = max(1, round(batches / config.grad_accum_steps))
        updates = run_steps(
            self.trainable,
            self.optimizer,
            config,
            num_steps=num_steps,
            device=self.device,
            dist_env=self.dist_env,
            start_step=start_step,
            restart_step=self.progress.restart_step,
            state=scatter_rows(self.dist_env, state) if state else None,
            lr_scale=lambda: 0.5**self.progress.num_halvings,
        )
        pending: list[Step] = []
        started = time.perf_counter()
        for step in updates:
            if self.average is not None:
                self.average.update(step.number)
            pending.append(step)
            is_last = step.number == num_steps
            evaluate_now = is_last or step.number % (config.evaluate_every or steps_per_epoch) == 0
            save_now = is_last or step.number % (config.save_every or steps_per_epoch) == 0
            report_now = evaluate_now or save_now or step.number % config.log_every == 0
            # Processes synchronise at a report, so several must report at the same steps; signals
            # and clocks differ between them.
            if self.dist_env.world_size == 1:
                is_silent = time.perf_counter() - started > _MAX_SILENCE
                report_now = report_now or bool(received) or is_silent
            if not report_now:
                continue
            metrics, records = self._sync_metrics(pending, started)
            scores, improved = self._evaluate(step.number) if evaluate_now else ({}, False)
            if self.dist_env.is_main:
                records[-1] |= {f"{VALID}{name}": score for name, score in scores.items()}
                self.run.append_metrics(records)
            stop_reason = self._stop_reason(received)
            if save_now or stop_reason:
                self._save_checkpoint(step)
            unit = self.trainable.unit
            yield Report(step.number, num_steps, metrics, scores, improved, stop_reason, unit)
            if stop_reason:
                return
            pending, started = [], time.perf_counter()

    def _sync_metrics(
        self, pending: list[Step], started: float
    ) -> tuple[dict[str, float], list[dict[str, float]]]:
        """Copy the last updates from the device and check them; return a summary and records."""
        losses = torch.stack([step.loss for step in pending]).tolist()
        norms = torch.stack([step.grad_norm.to(step.loss) for step in pending]).tolist()
        counts = torch.stack([step.count for step in pending]).tolist()
        seconds = time.perf_counter() - started  # after the copies, which wait for the device
        self._check_updates(pending, losses, norms, counts)
        count = sum(counts)
        metrics = {
            "loss": _weighted_mean(losses, counts),
            "lr": pending[-1].lr,
            "grad_norm": sum(norms) / len(norms),
            "count": count,
            "per_second": count / seconds,
            "data_fraction": sum(step.data_seconds for step in pending) / seconds,
        }
        if self.device.type == "cuda":
            metrics["max_gib"] = torch.cuda.max_memory_allocated(self.device) / 2**30
        records = [
            {"step": s.number, "loss": loss, "lr": s.lr, "grad_norm": norm, "count": number}
            for s, loss, norm, number in zip(pending, losses, norms, counts, strict=True)
        ]
        auxiliary = [s.auxiliary_loss for s in pending if s.auxiliary_loss is not None]
        if auxiliary:
            values = torch.stack(auxiliary).tolist()
            metrics["auxiliary_loss"] = _weighted_mean(values, counts)
            for record, value in zip(records, values, strict=True):
                record["auxiliary_loss"] = value
        return metrics, records

    def _check_updates(
        self, pending: list[Step], losses: list[float], norms: list[float], counts: list[float]
    ) -> None:
        for step, loss, norm, count in zip(pending, losses, norms, counts, strict=True):
            if not math.isfinite(loss):
                self._fail(step.number - 1, f"the loss is not finite at update {step.number}")
            self._check_divergence(step.number, loss, count)
            if not math.isfinite(norm):
                self._fail(step.number, f"the gradient is not finite at update {step.number}")

    def _check_divergence(self, step: int, loss: float, count: float) -> None:
        factor, window = self.config.divergence_factor, self.config.divergence_window
        if factor is None:
            return
        mean = self.progress.loss_mean.add(step, loss, count, window=window, factor=factor)
        self._update_progress(loss_mean=mean)
        if mean.value > mean.bound(factor):
            self._fail(
                mean.last_good_step,
                f"the loss diverged: at update {step} its mean over {window} updates is "
                f"{mean.value:.3g}, its minimum was {mean.best:.3g}",
                "; if such a loss is expected, raise train.divergence_factor",
            )

    def _fail(self, bad_step: int, problem: str, advice: str = "") -> None:
        """Stop training and remove the checkpoints of update `bad_step` and later."""
        if self.dist_env.is_main:
            for step in self.run.checkpoint_steps():
                if step >= bad_step:
                    self.run.remove_checkpoint(step)
        raise ElmoreError(
            f"{problem}; {self.run.last_checkpoint_hint()}; restart with a lower train.lr or "
            f"train.max_grad_norm{advice}; the best model so far, if there is one, is "
            f"{self.run.best}"
        )

    def _evaluate(self, step: int) -> tuple[dict[str, float], bool]:
        """Score the model, or its averaged weights, and save it if it is the best so far."""
        with self.average.applied() if self.average else nullcontext():
            return self._evaluate_weights(step)

    def _evaluate_weights(self, step: int) -> tuple[dict[str, float], bool]:
        training = self.trainable.module.training
        self.trainable.module.eval()
        try:
            scores = self.trainable.evaluate()
        finally:
            self.trainable.module.train(training)
        metric = self.trainable.metric
        score = scores.get(metric)
        if score is not None:  # rounding may differ between processes; the main one decides
            own = torch.tensor(score if self.dist_env.is_main else 0.0, dtype=torch.float64)
            score = all_reduce_sum(self.dist_env, own.to(self.device)).item()
        if score is not None and not math.isfinite(score):
            self._fail(step, f"the {metric} is not finite after update {step}")
        sign = 1 if self.trainable.higher_is_better else -1
        best = self.progress.best_score
        improved = score is None or best is None or sign * score > sign * best
        if improved:
            self._update_progress(best_score=score, evals_since_best=0)
            if self.dist_env.is_main:
                self._save_best(scores)
        elif not (self.trainable.higher_is_better and score == best == 0):
            # An F1 of 0 from the start is no plateau: nothing has been labelled right yet.
            evals = self.progress.evals_since_best + 1
            halvings = self.progress.num_halvings + schedule.halves_lr(self.config, evals)
            self._update_progress(evals_since_best=evals, num_halvings=halvings)
        return scores, improved

    def _save_best(self, scores: dict[str, float]) -> None:
        try:
            self.trainable.save(self.run.best, scores)
        except (OSError, ElmoreError) as error:
            raise ElmoreError(f"{error}; {self.run.last_checkpoint_hint()}") from error

    def _stop_reason(self, received: list[int]) -> str:
        number = received[0] if received else 0
        total = all_reduce_sum(self.dist_env, torch.tensor(float(number), device=self.device))
        if total.item():  # a process that got no signal stops with the others
            return signal.Signals(number or signal.SIGTERM).name
        if self.should_stop_early:
            evals = self.progress.evals_since_best
            return f"no better {self.trainable.metric} in {evals} evaluations"
        return ""

    def _update_progress(self, **values: Any) -> None:  # noqa: ANN401 -- of its fields
        self.progress = replace(self.progress, **values)

    def _save_checkpoint(self, step: Step) -> None:
        self._update_progress(step=step.number)
        state = gather_rows(self.dist_env, step.state)
        if self.dist_env.is_main:
            checkpoint = Checkpoint(self.progress, state)
            self.run.save_checkpoint(
                self.trainable.module,
                self.optimizer,
                checkpoint,
                self.average,
                keep=self.config.keep_checkpoints,
            )


@contextmanager
def deterministic(config: TrainConfig) -> Iterator[None]:
    """Use deterministic algorithms inside, if the config asks for them."""
    before = torch.are_deterministic_algorithms_enabled()
    if config.deterministic:  # cuBLAS reads this at its first use
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(config.deterministic or before)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _weighted_mean(values: list[float], counts: list[float]) -> float:
    return sum(map(operator.mul, values, counts)) / max(1, sum(counts))


class _TensorBoard:
    """Writes TensorBoard events, if that package is installed."""

    def __init__(self, run: Run, start_step: int, dist_env: DistEnv) -> None:
        self.writer: Any = None
        if not dist_env.is_main:
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            _log.info("tensorboard is not installed; the metrics are in metrics.jsonl")
            return
        purge = start_step + 1 if start_step else None
        self.writer = SummaryWriter(str(run.folder), purge_step=purge)

    def __enter__(self) -> "_TensorBoard":
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
