"""benchmarks/train_in_time.py: what it waits for, counts and writes; the training is pretrain's."""

import hashlib
import importlib
import json
import shutil
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.scripts import ROOT


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("train_in_time")


def make_job(script, folder, *, seconds):
    text, out = folder / "text", folder / "out"
    text.mkdir()
    out.mkdir()
    until = time.time() + seconds
    return script.Job("tiny", text, out, folder / "valid.txt", [], until, "cpu", None, None, [])


def write_sums(job, **contents):
    lines = [f"{hashlib.sha256(c.encode()).hexdigest()}  {name}\n" for name, c in contents.items()]
    (job.text / "SHA256SUMS").write_text("".join(lines))


def test_files_are_complete_when_their_digests_are_those_of_the_list(script, tmp_path):
    job = make_job(script, tmp_path, seconds=60)
    write_sums(job, a="all of a", b="all of b")
    (job.text / "a").write_text("all of a")
    (job.text / "b").write_text("all")
    found = []
    waiting = threading.Thread(target=lambda: found.append(script.wait_for_text(job)))
    waiting.start()
    waiting.join(3 * script.POLL)
    assert not found
    (job.text / "b").write_text("all of b")
    waiting.join()
    assert found == [[job.text / "a", job.text / "b"]]


def test_lines_of_the_list_that_are_still_being_copied_are_not_read(script, tmp_path):
    path = tmp_path / "SHA256SUMS"
    path.write_text("aa  a b.txt\nbb *c.txt\ncc  d")
    assert script.read_sums(path) == {tmp_path / "a b.txt": "aa", tmp_path / "c.txt": "bb"}


def test_held_out_text_beside_the_text_is_not_trained_on(script, tmp_path):
    job = make_job(script, tmp_path, seconds=60)
    job = job._replace(valid=job.text / "valid.txt")
    write_sums(job, **{"a.txt": "a", "valid.txt": "b"})
    (job.text / "a.txt").write_text("a")
    (job.text / "valid.txt").write_text("b")
    assert script.wait_for_text(job) == [job.text / "a.txt"]


def test_text_that_does_not_arrive_is_counted(script, tmp_path):
    job = make_job(script, tmp_path, seconds=-1)
    write_sums(job, a="a", b="b")
    (job.text / "a").write_text("a")
    with pytest.raises(TimeoutError, match=r"1 of 2 files in .*SHA256SUMS arrived"):
        script.wait_for_text(job)


@given(st.floats(0, 2000), st.floats(0.001, 1), st.floats(0, 20), st.sampled_from([1, 50, 5000]))
def test_the_counted_updates_fit_with_their_evaluations(
    script, seconds, per_update, evaluation, every
):
    count = script.count_updates(seconds, per_update, evaluation, every)
    evaluations = 1 + count // every
    assert count == 0 or count * per_update + evaluations * evaluation <= seconds + 1e-6
    more = count + 2  # one that is rounded off, one too many
    assert more * (per_update + evaluation / every) + evaluation > seconds


def test_the_pieces_of_a_folder_are_the_folder(script, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_bytes(hashlib.shake_256(b"").digest(5000))
    (model / "card").write_text("a card")
    pieces = tmp_path / "pieces"
    count = script.split_folder(model, pieces, 1000)
    assert count == len(list(pieces.glob("model.tar.gz.*"))) > 5
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=pieces, check=True)
    home = tmp_path / "home"
    home.mkdir()
    subprocess.run("cat ../pieces/model.tar.gz.* | tar xz", shell=True, cwd=home, check=True)
    for name in ("weights", "card"):
        assert (home / "model" / name).read_bytes() == (model / name).read_bytes()


class FakeTraining:
    """A training that ends at once, with this exit status; with None it runs until it is killed."""

    def __init__(self, command, status):
        self.command = command
        self.returncode = status
        self.killed = False

    def poll(self):
        return self.returncode

    def kill(self):
        self.killed = True

    def wait(self):
        return self.returncode


@pytest.fixture
def stubbed(script, monkeypatch):
    """Make trainings that log 50 updates in a second; return those that were started."""
    started = []

    def begin(job, *, status=0, evaluate_every=100, last=160, evaluated=True):
        recipe = {"train": {"evaluate_every": evaluate_every}}
        began = time.time()

        def start(_, command):
            folder = job.run if started else job.trial
            assert f"--out={folder}" in command
            folder.mkdir(parents=True)  # fails if an earlier run is there
            (folder / "recipe.json").write_text(json.dumps(recipe))
            if started and evaluated:
                (folder / "best").mkdir()
            started.append(FakeTraining(command, status if started else None))
            return started[-1]

        def wait_for_update(_job, update, _training):
            reached = min(last, 60 if update < last else last)
            return reached, began + 10 + reached / 50

        monkeypatch.setattr(script, "start", start)
        monkeypatch.setattr(script, "wait_for_update", wait_for_update)
        return started

    return begin


def steps(training):
    (setting,) = (word for word in training.command if word.startswith("--set=train.steps="))
    return int(setting.rpartition("=")[2])


def test_after_a_measured_training_a_new_one_has_the_updates_that_fit(script, stubbed, tmp_path):
    job = make_job(script, tmp_path, seconds=1000)
    started = stubbed(job)
    assert script.train(job, measured=160, evaluation=2, reserve=90) == ""
    measured, new = started
    assert measured.killed
    assert not new.killed
    assert steps(measured) > 50_000  # a warm-up is as long as it will be
    assert "--resume" not in new.command  # which is refused with fewer updates
    # 1,000 s less 90 of reserve, 10 of starting and 2 of the last evaluation, 0.02 + 0.02 an update
    assert steps(new) == pytest.approx(898 / 0.0402, abs=20)


def test_a_training_that_dies_is_not_taken_for_one_that_ended(script, stubbed, tmp_path):
    job = make_job(script, tmp_path, seconds=1000)
    stubbed(job, status=1)
    early = script.train(job, measured=160, evaluation=2, reserve=90)
    assert early == "the training ended with exit 1"


def test_a_training_that_dies_without_a_model_is_an_error(script, stubbed, tmp_path):
    job = make_job(script, tmp_path, seconds=1000)
    stubbed(job, status=1, evaluated=False)
    with pytest.raises(RuntimeError, match="exit 1, before a model was evaluated"):
        script.train(job, measured=160, evaluation=2, reserve=90)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [({"evaluate_every": 0}, "evaluate_every is 0"), ({"last": 50}, "50 updates are logged")],
)
def test_a_recipe_that_cannot_be_measured_is_refused(script, stubbed, tmp_path, recipe, message):
    job = make_job(script, tmp_path, seconds=1000)
    stubbed(job, **recipe)
    with pytest.raises(ValueError, match=message):
        script.train(job, measured=160, evaluation=2, reserve=90)


def test_what_an_earlier_start_left_is_not_measured(script, stubbed, tmp_path):
    job = make_job(script, tmp_path, seconds=1000)
    started = stubbed(job)
    job.trial.mkdir()
    (job.trial / "metrics.jsonl").write_text('{"step": 160}\n')
    script.train(job, measured=160, evaluation=2, reserve=90)
    assert len(started) == 2
    assert not job.trial.exists()


def test_the_run_of_an_earlier_start_is_not_deleted(script, monkeypatch, tmp_path, capsys):
    checkpoint = tmp_path / "out" / "run" / "checkpoint"
    checkpoint.mkdir(parents=True)
    words = ["tiny", str(tmp_path), str(tmp_path / "out"), "--until", "0", "--valid", "v"]
    monkeypatch.setattr(sys, "argv", ["train_in_time.py", *words])
    with pytest.raises(SystemExit):
        script.main()
    assert "the run of an earlier start; remove it, or name another OUT" in capsys.readouterr().err
    assert checkpoint.exists()


def test_time_that_is_too_short_is_named(script, stubbed, tmp_path):
    job = make_job(script, tmp_path, seconds=80)
    stubbed(job)
    with pytest.raises(TimeoutError, match="only 0 updates fit"):
        script.train(job, measured=160, evaluation=2, reserve=90)


def test_how_it_ended_is_always_written(script, monkeypatch, tmp_path):
    out = tmp_path / "out"
    words = ["tiny", str(tmp_path), str(out), "--until", "0", "--valid", "valid.txt"]
    words += ["--set", "train.steps=1", "--set", "train.lr=1", "train.seed=2"]
    monkeypatch.setattr(sys, "argv", ["train_in_time.py", *words])
    jobs = []
    monkeypatch.setattr(script, "wait_for_text", lambda job: jobs.append(job) or [])
    monkeypatch.setattr(script, "prepare", lambda *_: None)
    monkeypatch.setattr(script, "store", lambda *_: None)
    ends = {
        ("", ()): "all is there",
        ("it died", ()): "all is there, but it died",
        ("", ("a failed",)): "all is there, but a failed",
        ("it died", ("a failed", "b too")): "all is there, but it died; a failed; b too",
    }
    for (early, problems), end in ends.items():
        monkeypatch.setattr(script, "train", lambda *_, early=early, **__: early)
        monkeypatch.setattr(script, "measure", lambda _, problems=problems: list(problems))
        script.main()
        assert (out / "done").read_text() == f"{end}\n"
    assert jobs[0].settings == ["train.steps=1", "train.lr=1", "train.seed=2"]
    monkeypatch.setattr(script, "store", lambda *_: {}["pieces"])
    with pytest.raises(SystemExit, match="KeyError"):
        script.main()
    assert (out / "done").read_text().startswith("stopped: KeyError")


def test_a_training_that_cannot_begin_says_why(script, tmp_path):
    job = make_job(script, tmp_path, seconds=60)
    with pytest.raises(RuntimeError, match=r"exit 1; see .*train\.txt"):
        script.train(job, measured=3, evaluation=1, reserve=1)
    assert "no index.json" in (job.out / "train.txt").read_text()
    assert "elmore pretrain tiny" in (job.out / "log.txt").read_text()


def test_what_is_stored_is_measured_as_long_as_there_is_time(script, monkeypatch, tmp_path):
    job = make_job(script, tmp_path, seconds=60)._replace(
        out=tmp_path / "an out",
        then=[("info", "info {model} --json"), ("wrong", "info --no-such-option")],
    )
    shutil.copytree(ROOT / "elmore/weights/bundled", job.model)
    start = subprocess.Popen

    def start_slow_evaluation(command, **files):
        sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
        return start(sleeping if "evaluate" in command else command, **files)

    monkeypatch.setattr(script.subprocess, "Popen", start_slow_evaluation)
    log = job.out / "log.txt"
    both_ended = lambda _: float(log.read_text().count("ended with") < 2)  # noqa: E731
    monkeypatch.setattr(script.Job, "seconds_left", both_ended)
    log.touch()
    problems = script.measure(job)
    folder, lines = job.out / "measured", log.read_text()
    assert json.loads((folder / "info.json").read_text())["language"] == "English"
    assert "No such option" in (folder / "wrong.txt").read_text()
    assert "info ended with exit 0" in lines
    assert problems == ["wrong ended with exit 2", "perplexity did not end in time"]


@pytest.mark.parametrize("names", [["perplexity"], ["a", "a"], ["a/b"]])
def test_measurements_that_would_overwrite_each_other_are_refused(
    script, monkeypatch, tmp_path, names, capsys
):
    words = ["tiny", str(tmp_path), str(tmp_path / "out"), "--until", "0", "--valid", "v"]
    words += [word for name in names for word in ("--then", name, "info")]
    monkeypatch.setattr(sys, "argv", ["train_in_time.py", *words])
    with pytest.raises(SystemExit):
        script.main()
    assert "--then: names of files are expected, each once" in capsys.readouterr().err


def test_a_command_that_no_shell_could_read_is_refused_before_the_training(
    script, monkeypatch, tmp_path, capsys
):
    words = ["tiny", str(tmp_path), str(tmp_path / "out"), "--until", "0", "--valid", "v"]
    words += ["--then", "a", "info '{model}"]
    monkeypatch.setattr(sys, "argv", ["train_in_time.py", *words])
    with pytest.raises(SystemExit):
        script.main()
    assert "--then a: no closing quotation" in capsys.readouterr().err.lower()


def test_what_is_still_being_printed_can_be_watched(script, tmp_path, capsys):
    (tmp_path / "done").write_text("all is there\n")
    (tmp_path / "train.txt").write_bytes("updates │".encode()[:-1])  # a letter is half there
    assert script.watch(tmp_path, 600) == 0
    assert "updates" in capsys.readouterr().out


def test_watching_ends_when_nothing_runs(script, tmp_path, capsys):
    assert script.watch(tmp_path, 600) == 1  # a folder that was emptied
    assert "no script is running" in capsys.readouterr().out
    (tmp_path / "log.txt").write_text("1\n2\n3\n4\n")
    (tmp_path / "done").write_text("stopped: MemoryError\n")
    (tmp_path / "pieces").mkdir()
    (tmp_path / "pieces" / "SHA256SUMS").touch()
    assert script.watch(tmp_path, 600) == 1
    assert capsys.readouterr().out == "2\n3\n4\n"
    (tmp_path / "done").write_text("all is there\n")
    assert script.watch(tmp_path, 600) == 0
    (tmp_path / "done").unlink()
    # A script that was killed: it is not running, even while nobody has asked for its exit status.
    code = (
        "import sys; from pathlib import Path; from elmore import lock; "
        "held = lock.acquire(Path(sys.argv[1])); print('held', flush=True); input()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holding:
        assert holding.stdout.readline() == b"held\n"
        assert script.watch(tmp_path, 0.5) == 0  # it still measures
        holding.kill()
        assert script.watch(tmp_path, 600) == 1
