"""How the loop is driven: when it looks, what it keeps, why it stops, how it goes on."""

import json
import math
import os
import shutil
import signal
import time
from functools import partial

import pytest
import torch

from elmore.errors import ConfigError, DataError, ElmoreError
from elmore.train import fit as fits
from elmore.train import signals
from elmore.train.config import TrainConfig
from elmore.train.distributed import SINGLE_PROCESS
from elmore.train.fit import Report
from elmore.train.loop import StepOutput
from elmore.train.runs import Run
from tests.support.toy_training import Forgetful, Line, Toy

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    monkeypatch.setattr(fits, "_MAX_SILENCE", math.inf)  # for this machine may be paused


def fitted(folder, toy: Toy | None = None, *, resume: bool = False, **config) -> list[Report]:
    run = Run(folder)
    run.create_or_resume({}, resume=resume)
    toy = toy or Toy()
    settings = TrainConfig(**({"lr": 0.05, "warmup_steps": 2} | config))
    return list(fits.fit(toy, settings, run, device=CPU, dist_env=SINGLE_PROCESS, resume=resume))


def lines(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_it_evaluates_at_its_interval_and_at_the_end(tmp_path):
    toy = Toy(scores=[3.0, 2.0, 4.0])
    reports = fitted(tmp_path, toy, steps=11, log_every=3, evaluate_every=4, save_every=5)
    assert [report.step for report in reports] == [3, 4, 5, 6, 8, 9, 10, 11]
    scores = {report.step: report.scores for report in reports if report.scores}
    assert scores == {4: {"score": 3.0}, 8: {"score": 2.0}, 11: {"score": 4.0}}
    assert Run(tmp_path).checkpoint_steps() == [10, 11]  # two are kept
    assert [line["step"] for line in lines(tmp_path)] == list(range(1, 12))
    written = {line["step"]: line["valid_score"] for line in lines(tmp_path) if len(line) > 5}
    assert written == {4: 3.0, 8: 2.0, 11: 4.0}
    assert {report.num_steps for report in reports} == {11}


def test_an_auxiliary_loss_has_its_own_key_in_the_metrics_and_is_no_part_of_the_loss(tmp_path):
    class Doubled(Line):
        def forward(self, batch, carried):
            output = super().forward(batch, carried)
            return output._replace(auxiliary_loss=2 * output.loss)

    reports = fitted(tmp_path / "two", Toy(Doubled()), steps=6, log_every=3, max_grad_norm=None)
    records = lines(tmp_path / "two")
    assert len(records) == 6
    for one in (*records, *(report.metrics for report in reports)):
        assert one["auxiliary_loss"] == pytest.approx(2 * one["loss"])
    mean = sum(record["auxiliary_loss"] for record in records[:3]) / 3
    assert reports[0].metrics["auxiliary_loss"] == pytest.approx(mean)
    (report, *_) = fitted(tmp_path / "one", steps=6, log_every=3, max_grad_norm=None)
    first, plain = records[0], lines(tmp_path / "one")[0]
    assert first["loss"] == plain["loss"]
    assert first["grad_norm"] == pytest.approx(3 * plain["grad_norm"])
    assert "auxiliary_loss" not in report.metrics | plain


def test_a_run_shorter_than_its_warm_up_is_warned_of_and_reaches_its_rate(tmp_path, caplog):
    reports = fitted(tmp_path / "short", steps=18, warmup_steps=100, log_every=1)
    assert max(report.metrics["lr"] for report in reports) == 0.05
    assert "the run has only 18 updates (train.warmup_steps alone is 100)" in caplog.text
    caplog.clear()
    fitted(tmp_path / "long", steps=18, warmup_steps=18)
    assert not caplog.messages


def test_a_run_that_began_without_a_limit_of_its_warm_up_keeps_all_of_it(tmp_path):
    settings = {"warmup_steps": 8, "log_every": 1, "save_every": 2}
    fitted(tmp_path, steps=8, warmup_fraction=None, **settings)
    expected = [line["lr"] for line in lines(tmp_path)]
    for path in (tmp_path / "checkpoints").glob("step-*8"):
        shutil.rmtree(path)
    (tmp_path / "recipe.json").write_text('{"format": 5}')
    fitted(tmp_path, steps=8, resume=True, **settings)
    assert [line["lr"] for line in lines(tmp_path)] == pytest.approx(expected)


def test_a_finished_run_can_be_made_longer_but_not_shorter(tmp_path):
    def fitted_by(steps: int, *, resume: bool, **settings: object) -> list[Report]:
        config = TrainConfig(steps=steps, lr=0.05, schedule="constant", warmup_steps=0, log_every=1)
        run = Run(tmp_path)
        recipe = {"train": {"steps": steps, "epochs": 10.0}, **settings}
        with run:
            run.create_or_resume(recipe, resume=resume)
            arguments = {"device": CPU, "dist_env": SINGLE_PROCESS, "resume": resume}
            return list(fits.fit(Toy(), config, run, **arguments))

    assert fitted_by(4, resume=False)[-1].step == 4
    assert [report.step for report in fitted_by(7, resume=True)] == [5, 6, 7]
    assert json.loads((tmp_path / "recipe.json").read_text())["train"]["steps"] == 7
    assert [line["step"] for line in lines(tmp_path)] == list(range(1, 8))
    with pytest.raises(ConfigError, match=r"another recipe \(train.steps 7 -> 5\)"):
        fitted_by(5, resume=True)
    with pytest.raises(ConfigError, match=r"\(stream.min_batches 0 -> 100\).* --set"):
        fitted_by(9, resume=True, stream={"min_batches": 100})  # as a new default of a recipe


def test_slow_updates_are_reported_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setattr(fits, "_MAX_SILENCE", 0.0)
    reports = fitted(tmp_path, steps=5, log_every=100)
    assert [report.step for report in reports] == [1, 2, 3, 4, 5]
    assert [report.metrics["loss"] for report in reports] == [
        line["loss"] for line in lines(tmp_path)
    ]


def test_an_interval_of_zero_is_once_per_epoch(tmp_path):
    toy = Toy()
    toy.batches_per_epoch = 6
    reports = fitted(tmp_path, toy, epochs=2, grad_accum_steps=2, evaluate_every=0, save_every=0)
    assert [report.step for report in reports] == [3, 6]
    assert len(toy.saved) == 2
    assert Run(tmp_path).checkpoint_steps() == [3, 6]


def test_metrics_are_means_over_the_updates_since_the_last_look(tmp_path):
    """The loss over everything that was predicted, so that an update with more counts for more."""

    class Uneven(Toy):
        def make_batch(self, number):
            return tuple(each[: 1 + number % 4] for each in super().make_batch(number))

    reports = fitted(tmp_path, Uneven(Forgetful()), steps=10, log_every=4)
    result = lines(tmp_path)
    for report, (first, last) in zip(reports, [(0, 4), (4, 8), (8, 10)], strict=True):
        some = [(line["loss"], line["count"]) for line in result[first:last]]
        count = sum(1 + number % 4 for number in range(first, last))
        mean = sum(loss * number for loss, number in some) / count
        assert report.metrics["loss"] == pytest.approx(mean)
        assert (report.metrics["count"], report.unit) == (count, "rows")
        assert report.metrics["lr"] == result[last - 1]["lr"]


@pytest.mark.parametrize(("higher", "kept"), [(False, [3.0, 1.0]), (True, [3.0, 4.0])])
def test_the_best_is_kept(tmp_path, higher, kept):
    toy = Toy(scores=[3.0, 1.0, 4.0, 4.0, 2.0], higher_is_better=higher)
    reports = fitted(tmp_path, toy, steps=5, evaluate_every=1)
    assert [scores["score"] for scores in toy.saved] == kept
    assert [report.scores["score"] for report in reports if report.improved] == kept
    assert (tmp_path / "best" / "weight.txt").exists()


def test_without_held_out_data_the_newest_is_the_best(tmp_path):
    toy = Toy()
    fitted(tmp_path, toy, steps=4, evaluate_every=2)
    assert toy.saved == [{}, {}]
    assert (tmp_path / "best" / "weight.txt").read_text() == str(toy.module.weight.tolist())


def test_averaged_weights_are_evaluated_and_saved_and_the_others_are_trained(tmp_path):
    class Watched(Toy):
        def evaluate(self):
            seen.append(self.module.weight.tolist())
            return super().evaluate()

    seen: list[list[float]] = []
    plain, averaged = Toy(), Watched()
    config = {"steps": 6, "evaluate_every": 3, "save_every": 3}
    fitted(tmp_path / "plain", plain, **config)
    fitted(tmp_path / "averaged", averaged, **config, ema_decay=0.5)
    assert torch.equal(averaged.module.weight, plain.module.weight)
    assert lines(tmp_path / "averaged") == lines(tmp_path / "plain")
    assert (tmp_path / "averaged" / "best" / "weight.txt").read_text() == str(seen[-1])
    assert seen[-1] != plain.module.weight.tolist()
    files = {path.name for path in (tmp_path / "plain").rglob("*.safetensors")}
    assert files == {"model.safetensors", "optimizer.safetensors", "recurrent_state.safetensors"}


def test_a_run_without_its_averages_is_not_resumed(tmp_path):
    fitted(tmp_path, steps=4, save_every=2, ema_decay=0.9)
    path = Run(tmp_path).checkpoints / "step-00000004" / "average.safetensors"
    path.unlink()
    with pytest.raises(DataError, match=r"step-00000004: not a readable checkpoint \(.*average"):
        fitted(tmp_path, resume=True, steps=8, save_every=2, ema_decay=0.9)


def test_early_stopping_ends_a_run_also_when_it_is_resumed(tmp_path):
    toy = Toy(scores=[3.0, 2.0, 2.5, 2.4, 1.0])
    reports = fitted(tmp_path, toy, steps=20, evaluate_every=2, patience=2)
    assert reports[-1].step == 8
    assert reports[-1].stop_reason == "no better score in 2 evaluations"
    assert Run(tmp_path).checkpoint_steps()[-1] == 8
    assert fitted(tmp_path, Toy(), resume=True, steps=20, evaluate_every=2, patience=2) == []


def test_patience_restarts_when_the_score_improves(tmp_path):
    toy = Toy(scores=[3.0, 3.5, 2.0, 2.5, 1.0, 1.0])
    reports = fitted(tmp_path, toy, steps=6, evaluate_every=1, patience=2)
    assert reports[-1].step == 6
    assert reports[-1].stop_reason == ""


def test_a_plateau_halves_the_rate_and_an_improvement_keeps_it_there(tmp_path):
    toy = Toy(scores=[3.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0])
    config = {"steps": 9, "schedule": "plateau", "plateau_patience": 2, "warmup_steps": 0}
    fitted(tmp_path, toy, evaluate_every=1, lr=0.8, **config)
    assert [line["lr"] for line in lines(tmp_path)] == [0.8] * 4 + [0.4] * 4 + [0.2]


def test_a_score_of_0_from_the_start_is_no_plateau(tmp_path):
    toy = Toy(scores=[0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0], higher_is_better=True)
    config = {"schedule": "plateau", "plateau_patience": 1, "warmup_steps": 0, "patience": 2}
    reports = fitted(tmp_path, toy, steps=20, evaluate_every=1, lr=0.8, **config)
    assert [line["lr"] for line in lines(tmp_path)] == [0.8] * 6 + [0.4]
    assert reports[-1].step == 7


def test_a_loss_that_stays_at_0_ends_a_run(tmp_path):
    reports = fitted(tmp_path, Toy(scores=[0.0]), steps=20, evaluate_every=1, patience=2)
    assert reports[-1].step == 3


def test_other_schedules_do_not_halve_the_rate(tmp_path):
    toy = Toy(scores=[1.0])
    fitted(tmp_path, toy, steps=6, evaluate_every=1, schedule="constant", warmup_steps=0)
    assert {line["lr"] for line in lines(tmp_path)} == {0.05}


class KilledError(Exception):
    """As hard as a kill: nothing after it is done."""


def killed(monkeypatch, folder, at: int, **config) -> None:
    log = Run.append_metrics

    def dying(self, records):
        log(self, records)
        if records[-1]["step"] >= at:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(Run, "append_metrics", dying)
        with pytest.raises(KilledError):
            fitted(folder, Toy(Line(dropout=0.4), scores=[5.0, 6.0, 4.0]), **config)


@pytest.mark.parametrize(
    ("at", "more"),
    [
        *((at, {"evaluate_every": 4}) for at in (2, 6, 9, 12)),
        (9, {"evaluate_every": 1, "schedule": "plateau", "plateau_patience": 2}),
        (9, {"evaluate_every": 4, "ema_decay": 0.9}),
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, monkeypatch, at, more):
    config = {"steps": 12, "save_every": 3, "log_every": 2} | more
    whole = Toy(Line(dropout=0.4), scores=[5.0, 6.0, 4.0])
    fitted(tmp_path / "whole", whole, **config)
    killed(monkeypatch, tmp_path / "run", at, **config)
    resumed = Toy(Line(dropout=0.4), scores=[5.0, 6.0, 4.0])
    done = max(Run(tmp_path / "run").checkpoint_steps(), default=0)
    resumed.evaluated = done // more["evaluate_every"]
    fitted(tmp_path / "run", resumed, resume=True, **config)
    assert torch.equal(resumed.module.weight, whole.module.weight)
    assert lines(tmp_path / "run") == lines(tmp_path / "whole")
    for path in (tmp_path / "whole").rglob("*"):
        if path.is_file():
            other = tmp_path / "run" / path.relative_to(tmp_path / "whole")
            assert other.read_bytes() == path.read_bytes(), path


LONG = {"steps": 240, "save_every": 20, "log_every": 1, "keep_checkpoints": 20}


def restarted(whole, folder, step: int) -> None:
    """Copy a run up to an update, without the state of its optimizer."""
    shutil.copytree(whole, folder)
    for path in sorted(Run(folder).checkpoints.iterdir()):
        if path.name > f"step-{step:08}":
            shutil.rmtree(path)
    (Run(folder).checkpoints / f"step-{step:08}" / "optimizer.safetensors").unlink()


@pytest.mark.parametrize("optimizer", ["adamw", "adagrad", "muon"])
def test_a_warm_restart_goes_on_with_the_weights_and_the_schedule(tmp_path, caplog, optimizer):
    config = LONG | {"optimizer": optimizer, "lr": 0.2 if optimizer == "adagrad" else 0.02}
    fitted(tmp_path / "whole", **config)
    restarted(tmp_path / "whole", tmp_path / "run", 40)
    caplog.clear()
    fitted(tmp_path / "run", resume=True, **config)
    assert caplog.messages == [
        f"{tmp_path / 'run'}: the checkpoint of update 40 has no optimizer.safetensors: the "
        "optimizer starts fresh, and the learning rate warms up over 20 updates"
    ]
    before, after = lines(tmp_path / "whole"), lines(tmp_path / "run")
    assert [line["step"] for line in after] == list(range(1, 241))
    assert after[:40] == before[:40]
    assert after[40]["loss"] == before[40]["loss"]  # the same weights, state and batch
    rates = [(b["lr"], a["lr"]) for b, a in zip(before, after, strict=True)]
    assert all(a == pytest.approx(b * n / 20) for n, (b, a) in enumerate(rates[40:60], start=1))
    assert all(a == b for b, a in rates[60:])
    losses = [line["loss"] for line in after]
    assert sum(losses[60:80]) < sum(losses[20:40])
    assert sum(losses[-20:]) < sum(losses[60:80])


def test_a_run_killed_during_the_warm_up_of_a_restart_goes_on_with_it(tmp_path):
    config = LONG | {"steps": 80}
    fitted(tmp_path / "whole", **config)
    restarted(tmp_path / "whole", tmp_path / "a", 40)
    config |= {"save_every": 7}
    fitted(tmp_path / "a", resume=True, **config | {"keep_checkpoints": 40})
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for path in sorted(Run(tmp_path / "b").checkpoints.iterdir()):
        if path.name > "step-00000049":  # the warm-up ends at 60
            shutil.rmtree(path)
    fitted(tmp_path / "b", resume=True, **config)
    assert lines(tmp_path / "b") == lines(tmp_path / "a")
    weights = "checkpoints/step-00000080/model.safetensors"
    assert (tmp_path / "b" / weights).read_bytes() == (tmp_path / "a" / weights).read_bytes()


def test_resuming_without_any_checkpoint_says_that_it_starts_anew(tmp_path, caplog):
    fitted(tmp_path, Toy(scores=[1.0]), steps=4)
    shutil.rmtree(Run(tmp_path).checkpoints)
    caplog.clear()
    fitted(tmp_path, Toy(scores=[1.0]), steps=4, resume=True)
    assert len(caplog.messages) == 1
    assert "there is no checkpoint, so training starts at update 0" in caplog.messages[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_stops_and_handlers_come_back(tmp_path, number):
    before = signal.getsignal(number)

    class Signalled(Toy):
        def evaluate(self):
            os.kill(os.getpid(), number)
            return {}

    reports = fitted(tmp_path, Signalled(), steps=100, evaluate_every=3, log_every=50)
    assert reports[-1].stop_reason == number.name
    assert reports[-1].step == 3
    assert Run(tmp_path).checkpoint_steps() == [3]
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_comes_again_at_once_changes_nothing(tmp_path, monkeypatch, number):
    """Also while the checkpoint is written, which a death would leave half done."""
    save = Run.save_checkpoint

    def saving(*arguments, **more):
        os.kill(os.getpid(), number)
        return save(*arguments, **more)

    class Signalled(Toy):
        def evaluate(self):
            for _ in range(3):
                os.kill(os.getpid(), number)
            return {}

    monkeypatch.setattr(Run, "save_checkpoint", saving)
    reports = fitted(tmp_path, Signalled(), steps=100, evaluate_every=3)
    assert (reports[-1].stop_reason, reports[-1].step) == (number.name, 3)
    assert Run(tmp_path).checkpoint_steps() == [3]


def test_an_interrupt_that_comes_again_later_ends_it_and_a_sigterm_does_not(
    tmp_path, monkeypatch, request
):
    monkeypatch.setattr(signals, "_BURST", -1.0)  # any time is later
    request.addfinalizer(partial(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT)))
    before = signal.default_int_handler  # a shell may start what is in the background deaf to it
    signal.signal(signal.SIGINT, before)
    for number in (signal.SIGINT, signal.SIGTERM):

        class Signalled(Toy):
            def evaluate(self, number=number):
                os.kill(os.getpid(), number)
                time.sleep(0.05)  # two that wait for a busy machine would count as one
                os.kill(os.getpid(), number)
                time.sleep(0.05)
                return {}

        if number == signal.SIGTERM:
            *_, last = fitted(tmp_path / "term", Signalled(), steps=100, evaluate_every=3)
            assert last.stop_reason == "SIGTERM"
        else:
            with pytest.raises(KeyboardInterrupt):
                fitted(tmp_path / "int", Signalled(), steps=100, evaluate_every=3)
            assert Run(tmp_path / "int").checkpoint_steps() == []
        assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_stops_at_the_next_update_even_between_evaluations(tmp_path):
    class Signalled(Line):
        calls = 0

        def forward(self, batch, carried):
            self.calls += 1
            if self.calls == 5:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().forward(batch, carried)

    (report,) = fitted(tmp_path, Toy(Signalled()), steps=100, log_every=50, evaluate_every=100)
    assert report.step == 5
    assert Run(tmp_path).checkpoint_steps() == [5]
    assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3, 4, 5]


class Breaking(Line):
    """Its loss, or its gradient, breaks at one update."""

    def __init__(self, at: int, factor: float, *, gradient: bool = False) -> None:
        super().__init__()
        self.at, self.factor, self.gradient, self.calls = at, factor, gradient, 0

    def forward(self, batch, carried):
        self.calls += 1
        output = super().forward(batch, carried)
        if self.calls != self.at:
            return output
        if self.gradient:
            return output._replace(loss=_Spoiled.apply(output.loss))
        return output._replace(loss=output.loss * self.factor)


class _Spoiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss):
        return loss.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * float("nan")


@pytest.mark.parametrize(
    ("module", "found", "last"),
    [
        (Breaking(6, float("nan")), "the loss is not finite at update 6", 4),
        (Breaking(6, float("inf")), "the loss is not finite at update 6", 4),
        (Breaking(6, 1e9), "the loss diverged: at update 6 its mean over 3 updates is", 4),
        (Breaking(5, 1e9), "the loss diverged: at update 5 .*", 2),  # after 4 it was bad
        (Breaking(6, 1.0, gradient=True), "the gradient is not finite at update 6", 4),
        (Breaking(2, float("nan")), "the loss is not finite at update 2; there is no good", None),
    ],
)
def test_a_bad_loss_stops_and_names_the_last_good_checkpoint(tmp_path, module, found, last):
    with pytest.raises(ElmoreError, match=found) as error:
        fitted(
            tmp_path,
            Toy(module),
            steps=20,
            save_every=2,
            log_every=3,
            keep_checkpoints=5,
            divergence_window=3,
        )
    assert "; restart with a lower train.lr or train.max_grad_norm" in str(error.value)
    assert str(error.value).endswith(
        f"; the best model so far, if there is one, is {tmp_path}/best"
    )
    assert max(Run(tmp_path).checkpoint_steps(), default=None) == last
    if last:
        assert f"the last good checkpoint is {tmp_path}/checkpoints/step-{last:08}" in str(
            error.value
        )


class Scripted(Forgetful):
    """A line whose losses are said beforehand, as (mean loss, count) of each update in turn."""

    def __init__(self, script: list[tuple[float, int]]) -> None:
        super().__init__()
        self.script = iter(script)

    def forward(self, batch, carried):
        output = super().forward(batch, carried)
        loss, count = next(self.script)
        return StepOutput(output.loss * 0 + loss * count, torch.tensor(count), {})


def test_a_run_over_short_and_long_documents_that_does_not_diverge_continues(tmp_path):
    script = [(0.3, 5), (0.3, 5), (6.0, 300)] * 20
    assert fitted(tmp_path, Toy(Scripted(script)), steps=60, divergence_window=10)[-1].step == 60


def test_a_run_that_gets_slowly_worse_is_stopped_and_its_bad_checkpoints_go(tmp_path):
    """Good until update 30, then ten times worse: the mean over 20 soon exceeds 3."""
    script = [(1.0, 5)] * 30 + [(10.0, 5)] * 30
    config = {"steps": 60, "save_every": 2, "keep_checkpoints": 9, "divergence_window": 20}
    with pytest.raises(ElmoreError) as error:
        fitted(tmp_path, Toy(Scripted(script)), **config)
    assert str(error.value) == (
        "the loss diverged: at update 41 its mean over 20 updates is 3.1, its minimum was 1; the "
        f"last good checkpoint is {tmp_path}/checkpoints/step-00000030; restart with a lower "
        "train.lr or train.max_grad_norm; if such a loss is expected, raise "
        f"train.divergence_factor; the best model so far, if there is one, is {tmp_path}/best"
    )
    assert Run(tmp_path).checkpoint_steps()[-1] == 30


def test_without_a_divergence_factor_only_what_is_not_finite_stops_a_run(tmp_path):
    script = [(1.0, 5)] * 5 + [(1e9, 5)] * 5
    config = {"steps": 10, "divergence_window": 2, "divergence_factor": None}
    assert fitted(tmp_path, Toy(Scripted(script)), **config)[-1].step == 10


def test_a_resumed_run_remembers_the_mean_of_its_losses(tmp_path):
    """Stopped where the loss jumps: the updates before are what it is compared with."""
    config = {"steps": 60, "save_every": 30, "divergence_window": 20}
    script = [(1.0, 5)] * 30 + [(10.0, 5)] * 30

    class Signalled(Toy):
        def evaluate(self):
            os.kill(os.getpid(), signal.SIGTERM)
            return {}

    stopped = fitted(tmp_path, Signalled(Scripted(script)), **config, evaluate_every=30)
    assert stopped[-1].step == 30
    with pytest.raises(ElmoreError, match=r"at update 41 its mean over 20 updates is 3.1"):
        fitted(tmp_path, Toy(Scripted(script[30:])), **config, resume=True)


def test_a_score_that_is_not_finite_stops_before_it_is_kept(tmp_path):
    toy = Toy(scores=[2.0, float("nan")])
    with pytest.raises(ElmoreError, match="the score is not finite after update 4"):
        fitted(tmp_path, toy, steps=20, evaluate_every=2, save_every=2)
    assert toy.saved == [{"score": 2.0}]
    assert Run(tmp_path).checkpoint_steps() == [2]


def test_a_module_is_evaluated_without_dropout_and_then_trained_on(tmp_path):
    class Looking(Toy):
        def evaluate(self):
            assert not self.module.training
            return {}

    toy = Looking()
    toy.module.train()
    fitted(tmp_path, toy, steps=2, evaluate_every=1)
    assert toy.module.training


def test_an_evaluation_that_fails_leaves_the_module_in_training(tmp_path):
    class Failing(Toy):
        def evaluate(self):
            raise DataError("no score")

    toy = Failing()
    toy.module.train()
    with pytest.raises(DataError, match="no score"):
        fitted(tmp_path, toy, steps=1)
    assert toy.module.training


def test_deterministic_is_asked_for_while_training_alone(tmp_path):
    seen = []

    class Looking(Toy):
        def evaluate(self):
            seen.append(torch.are_deterministic_algorithms_enabled())
            return {}

    fitted(tmp_path / "a", Looking(), steps=1, deterministic=True)
    fitted(tmp_path / "b", Looking(), steps=1)
    assert seen == [True, False]
    assert not torch.are_deterministic_algorithms_enabled()
