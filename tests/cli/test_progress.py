"""What a person sees while something takes its time."""

import logging
from types import SimpleNamespace

import pytest
import typer

from elmore.cli import progress, training
from elmore.train.fit import Report


class Screen:
    """A stream that keeps what is written, and a clock that a test turns."""

    def __init__(self, terminal: bool) -> None:
        self.written, self.now, self._terminal = "", 100.0, terminal

    def write(self, text: str) -> None:
        self.written += text

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return self._terminal

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(params=[True, False], ids=["terminal", "pipe"])
def screen(request, monkeypatch):
    result = Screen(request.param)
    for module in (progress, training):  # sys.stderr itself is pytest's
        monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=result))
    monkeypatch.setattr(progress.time, "monotonic", result.monotonic)
    return result


def test_a_progress_line_has_counts_speed_and_time_left(screen):
    with progress.show_progress("embedding") as update:
        update(0.2, lines=100, tokens=1000)  # what was done before is not this run's speed
        assert screen.written == ""
        screen.now += 10
        update(0.6, lines=300, tokens=5000)
        update(0.6, lines=301, tokens=5010)  # too soon to be told
    line = "embedding:  300 lines  5,000 tokens  400 tokens/s  60 %, 0:10 left"
    assert screen.written == (f"\r{line}\033[K\n" if screen.isatty() else f"{line}\n")


@pytest.mark.parametrize(("words", "rate"), [(3, "0.3"), (25, "2.5"), (50, "5"), (99.7, "10")])
def test_a_slow_rate_has_decimals(screen, words, rate):
    with progress.show_progress("measuring") as update:
        update(None, words=0)
        screen.now += 10
        update(None, words=words)
    assert f"words  {rate} words/s" in screen.written


def test_an_unknown_total_shows_no_time_left(screen):
    with progress.show_progress("reading") as update:
        update(None, words=0)
        screen.now += 10
        update(None, words=50)
    assert "reading:  50 words  5 words/s" in screen.written
    assert "left" not in screen.written


def test_quick_steps_are_not_logged(screen):
    with progress.show_progress("embedding") as update:
        update(0.5, lines=1)
        update(1.0, lines=2)
    assert screen.written == ""


def test_a_download_is_reported_in_megabytes(screen):
    with progress.show_download() as update:
        update(0, 50_000_000)
        screen.now += 10
        update(25_000_000, 50_000_000)
    assert "downloading:  25 MB  2.5 MB/s  50 %, 0:10 left" in screen.written


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00"), (61.9, "1:01"), (3600, "1:00:00"), (86399, "23:59:59")]
)
def test_times_are_written_as_clocks_are(seconds, shown):
    assert progress.clock(seconds) == shown


def report(step, *, stop_reason="", scores=None, unit="tokens", **metrics):
    told = {"loss": 2.0, "lr": 0.1, "per_second": 1000.0} | metrics
    return Report(step, 100, told, scores or {}, bool(scores), stop_reason, unit)


def test_the_unit_of_speed_is_named(screen):
    training.watch("training coref", [report(5, unit="spans")], show_perplexity=False)
    assert "training coref: 5 of 100  loss 2.000  lr 0.1  1,000 spans/s" in screen.written


def test_training_logs_its_memory(screen):
    last = training.watch("training", [report(5, max_gib=1.25, scores={"f1": 50.0})])
    assert last.step == 5
    line = "training: 5 of 100  loss 2.000  perplexity 7.4  lr 0.1  1,000 tokens/s  1.2 GB"
    assert line in screen.written
    assert "update 5: f1 50  (best so far)" in screen.written
    assert screen.written.endswith("\n")


def test_only_the_main_process_prints(screen, monkeypatch, tmp_path):
    monkeypatch.setenv("RANK", "1")
    last = training.watch("training", [report(5), report(6, stop_reason="no better f1")])
    training.report_end(last, tmp_path)
    assert last.step == 6
    assert screen.written.strip() == ""


@pytest.mark.parametrize(
    "name", ["elmore.lm.finetune", "elmore.tasks.train", "elmore.weights.fetch"]
)
def test_evaluation_between_updates_is_logged_by_one_process(screen, monkeypatch, name):
    log = logging.getLogger(name)

    def reports():
        log.info("%s takes its time", name)
        yield report(5)

    training.watch("training", reports())
    assert screen.written.lstrip("\r").startswith(f"{name} takes its time")
    assert "training: 5 of 100" in screen.written
    assert not log.isEnabledFor(logging.INFO)
    assert (log.handlers, log.propagate) == ([], True)
    monkeypatch.setenv("RANK", "1")
    screen.written = ""
    training.watch("training", reports())
    assert screen.written.strip() == ""


def test_training_stopped_by_a_signal_exits_with_the_code_of_the_signal(screen, tmp_path):
    with pytest.raises(typer.Exit) as exit_:
        training.report_end(report(7, stop_reason="SIGTERM"), tmp_path)
    assert exit_.value.exit_code == 128 + 15
    assert "stopped by SIGTERM after update 7, which is saved" in screen.written
    assert "the same command and --resume" in screen.written
