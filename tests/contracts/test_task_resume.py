"""A task that was killed and resumed is the task that never stopped: bit for bit, file for file."""

import json
import shutil
import signal
from pathlib import Path

import pytest

from tests.support import cli_processes, toy_tasks
from tests.support.cli_processes import KillAt
from tests.support.own_cache import make_cache


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("task")
    toy_tasks.write("ner", folder / "data.txt")
    toy_tasks.bilm(folder / "bilm")
    toy_tasks.vectors(folder / "vectors.txt")
    make_cache(folder / "cache")
    return folder


def ran(directory: Path, name: str, *more: str, **how):
    chosen = [*toy_tasks.small("ner"), "train.epochs=5", "train.log_every=1", "elmo.dropout=0.2"]
    settings = [part for value in chosen for part in ("--set", value)]
    data, out = str(directory / "data.txt"), str(directory / name)
    embedder = f"glove:{directory / 'vectors.txt'}+elmo:{directory / 'bilm'}"
    command = ["task", "train", "ner", "--train", data, "--dev", data, "-o", out, *settings]
    command += ["--embedder", embedder, "--device", "cpu", *more]
    return cli_processes.run(
        *command, environment={"ELMORE_CACHE": str(directory / "cache")}, **how
    )


@pytest.fixture(scope="module")
def whole(directory) -> Path:
    (result,) = ran(directory, "whole")
    assert result.code == 0, result
    return directory / "whole"


def files(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file() and "events" not in path.name]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize(
    "kill", [KillAt(2), KillAt(8), KillAt(9, while_saving=True)], ids=["first", "later", "saving"]
)
def test_killed_and_resumed(directory, whole, kill):
    name = f"killed-{kill.step}"
    (result,) = ran(directory, name, kill=kill)
    assert result.code == -signal.SIGKILL
    (result,) = ran(directory, name, "--resume")
    assert result.code == 0, result
    found, expected = files(directory / name), files(whole)
    assert sorted(found) == sorted(expected)
    for file, data in expected.items():
        assert found[file] == data, file
    lines = [json.loads(line) for line in found["metrics.jsonl"].splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 16))
    assert [line["step"] for line in lines if "valid_f1" in line] == [3, 6, 9, 12, 15]


def test_several_seeds_survive_a_kill_and_a_signal_ends_them_all(directory):
    (result,) = ran(directory, "seeds", "--num-seeds", "2", "--set", "train.epochs=2")
    assert result.code == 0, result
    expected = files(directory / "seeds")
    assert {name.partition("/")[0] for name in expected} == {"seed-0", "seed-1", "summary.json"}
    for name, kill, code in (
        ("seeds-killed", KillAt(4), -signal.SIGKILL),
        ("seeds-asked", KillAt(4, signal.SIGTERM), 128 + signal.SIGTERM),
    ):
        few = ("--num-seeds", "2", "--set", "train.epochs=2")
        (result,) = ran(directory, name, *few, kill=kill)
        assert result.code == code, result
        assert not (directory / name / "seed-1").exists()
        (result,) = ran(directory, name, *few, "--resume")
        assert result.code == 0, result
        shutil.rmtree(directory / name / "seed-1")  # as a kill between two of them has it
        (result,) = ran(directory, name, *few, "--resume")
        assert result.code == 0, result
        assert files(directory / name) == expected


CALM = ("model.dropout=0", "elmo.dropout=0", "train.precision=float64", "elmo.penalty=1")
"""Dropout is drawn by process, so two are one without it, to rounding."""


def set_all(*values: str) -> list[str]:
    return [part for value in values for part in ("--set", value)]


def losses(folder: Path) -> list[float]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def test_two_processes_share_each_batch(directory):
    (alone,) = ran(directory, "one", *set_all(*CALM))
    both = ran(directory, "two", *set_all(*CALM), "--test", str(directory / "data.txt"), ranks=2)
    assert [result.code for result in (alone, *both)] == [0, 0, 0], both
    assert [result.out.count("test  f1") for result in both] == [1, 0]  # one speaks for both
    # what is told is the sum of all terms over all tokens, and so is the gradient behind it
    assert losses(directory / "two") == pytest.approx(losses(directory / "one"), rel=1e-6)


def test_two_processes_accumulate_uneven_batches_into_one_large_one(directory):
    """Sentences differ in length, so each process has other counts in each of three batches."""
    (alone,) = ran(directory, "large", *set_all(*CALM, "batch_size=20"))
    both = ran(
        directory, "uneven", *set_all(*CALM, "batch_size=7", "train.grad_accum_steps=3"), ranks=2
    )
    assert [result.code for result in (alone, *both)] == [0, 0, 0], both
    assert len(losses(directory / "large")) == 5
    assert losses(directory / "uneven") == pytest.approx(losses(directory / "large"), rel=1e-6)


def test_two_processes_train_several(directory):
    results = ran(directory, "both", "--num-seeds", "2", "--set", "train.epochs=1", ranks=2)
    assert [result.code for result in results] == [0, 0], results
    assert [result.out.count("dev  f1") for result in results] == [1, 0]
    assert (directory / "both" / "seed-1" / "best").is_dir()
