"""A run that was killed and resumed is the run that never stopped: bit for bit, file for file.

Real processes through the command line, one thread each, dropout on. The two ranks of a run talk
through gloo; one pair of runs is started by torchrun itself.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

from tests.support import cli_processes, toy_corpus, toy_teacher
from tests.support.cli_processes import KillAt
from tests.support.cli_runner import run_elmore

NUM_STEPS = 24


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("resume")
    # a model without a name takes that of its run, and these must be the same to the letter
    (folder / "recipe.toml").write_text(f'{toy_corpus.RECIPE}\n[card]\nname = "model"\n')
    return folder


@pytest.fixture(scope="module")
def command(directory, corpus):
    """`elmore pretrain` with a name for the run, and more."""

    def give(name: str, *more: str) -> list[str]:
        recipe, out = str(directory / "recipe.toml"), str(directory / name)
        return ["pretrain", recipe, str(corpus.path), "-o", out, "--device", "cpu", *more]

    return give


@pytest.fixture(scope="module")
def whole(directory, command):
    """Runs that were never stopped, by the number of their ranks."""
    for ranks in (1, 2):
        results = cli_processes.run(*command(f"whole-{ranks}"), ranks=ranks)
        assert [result.code for result in results] == [0] * ranks, results
    return {ranks: directory / f"whole-{ranks}" for ranks in (1, 2)}


def files(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file() and "events" not in path.name]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def assert_same(run: Path, whole: Path) -> None:
    result, expected = files(run), files(whole)
    assert sorted(result) == sorted(expected)
    for name, data in expected.items():
        assert result[name] == data, name
    lines = [json.loads(line) for line in result["metrics.jsonl"].splitlines()]
    assert [line["step"] for line in lines] == list(range(1, NUM_STEPS + 1))
    assert [line["step"] for line in lines if "valid_perplexity" in line] == [8, 16, 24]


def test_an_uninterrupted_run_is_the_reference(whole):
    for folder in whole.values():
        names = set(files(folder))
        assert {"metrics.jsonl", "recipe.json", "best/model.safetensors"} < names
        for step in (16, 24):
            for kind in ("model", "optimizer", "recurrent_state"):
                assert f"checkpoints/step-{step:08}/{kind}.safetensors" in names


@pytest.mark.parametrize(
    ("kill", "saved"),
    [
        (KillAt(4), []),
        (KillAt(13), [8]),
        (KillAt(16, while_saving=True), [8]),
        (KillAt(24), [8, 16]),
    ],
    ids=["before any checkpoint", "between two", "while one is written", "at the last update"],
)
def test_killed_and_resumed(directory, command, whole, kill, saved):
    name = f"killed-{kill.step}"
    (result,) = cli_processes.run(*command(name), kill=kill)
    assert result.code == -signal.SIGKILL
    complete = [path.name for path in (directory / name / "checkpoints").glob("step-*")]
    assert sorted(complete) == [f"step-{step:08}" for step in saved]
    (result,) = cli_processes.run(*command(name, "--resume"))
    assert result.code == 0, result
    assert_same(directory / name, whole[1])


def test_a_run_may_be_killed_again_and_again(directory, command, whole):
    for step in (9, 9, 17):
        more = ["--resume"] if (directory / "often").exists() else []
        (result,) = cli_processes.run(*command("often", *more), kill=KillAt(step))
        assert result.code == -signal.SIGKILL
    (result,) = cli_processes.run(*command("often", "--resume"))
    assert result.code == 0, result
    assert_same(directory / "often", whole[1])


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_with_a_teacher_is_killed_and_resumed(directory, command, ranks):
    """The states that the teacher carries, and the maps to its layers, are in the checkpoint."""
    teacher = directory / f"teacher-{ranks}"
    toy_teacher.save(teacher)
    more = ("--set", f"distillation.teacher={teacher}")
    names = [f"taught-{ranks}-{name}" for name in ("whole", "killed")]
    results = cli_processes.run(*command(names[0], *more), ranks=ranks)
    assert [result.code for result in results] == [0] * ranks, results
    results = cli_processes.run(*command(names[1], *more), ranks=ranks, kill=KillAt(13))
    assert results[0].code == -signal.SIGKILL
    results = cli_processes.run(*command(names[1], *more, "--resume"), ranks=ranks)
    assert [result.code for result in results] == [0] * ranks, results
    assert_same(directory / names[1], directory / names[0])


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice, as torchrun does"])
def test_a_stop_signal_saves_a_checkpoint_and_the_run_can_be_resumed(
    directory, command, whole, times
):
    name = f"told-{times}"
    (result,) = cli_processes.run(*command(name), kill=KillAt(11, signal.SIGTERM, times=times))
    assert result.code == 128 + signal.SIGTERM
    assert result.out == ""
    *_, last = result.err.splitlines()
    assert last == (
        "elmore: stopped by SIGTERM after update 12, which is saved; continue with "
        "the same command and --resume"
    )
    assert (directory / name / "checkpoints" / "step-00000012").is_dir()
    (result,) = cli_processes.run(*command(name, "--resume"))
    assert result.code == 0, result
    assert_same(directory / name, whole[1])


def test_a_finished_run_is_left_alone(directory, command, whole):
    before = files(whole[1])
    (result,) = cli_processes.run(*command("whole-1", "--resume"))
    assert result.code == 0
    assert result.err == f"elmore: {whole[1]} is already finished: there is nothing to do\n"
    assert files(whole[1]) == before


def test_two_ranks_are_stopped_and_resumed(directory, command, whole):
    """One alone hears it, and tells the other."""
    results = cli_processes.run(
        *command("two-told"), ranks=2, kill=KillAt(12, signal.SIGTERM, rank=1)
    )
    assert [result.code for result in results] == [128 + signal.SIGTERM] * 2
    assert "stopped by SIGTERM after update 12" in results[0].err
    assert "stopped" not in results[1].err  # one speaks for both
    results = cli_processes.run(*command("two-told", "--resume"), ranks=2)
    assert [result.code for result in results] == [0, 0], results
    assert_same(directory / "two-told", whole[2])


@pytest.mark.parametrize("rank", [0, 1])
def test_when_one_rank_dies_the_other_stops_and_the_run_can_be_resumed(
    directory, command, whole, rank
):
    name = f"two-killed-{rank}"
    results = cli_processes.run(*command(name), ranks=2, kill=KillAt(13, rank=rank))
    assert results[rank].code == -signal.SIGKILL
    assert results[1 - rank].code == 1, results
    sentence = "another process of this training died; start all of them again with --resume"
    assert results[1 - rank].err.splitlines()[-1] == f"elmore: {sentence}"
    assert "Traceback" not in results[1 - rank].err
    results = cli_processes.run(*command(name, "--resume"), ranks=2)
    assert [result.code for result in results] == [0, 0], results
    assert_same(directory / name, whole[2])


def test_two_ranks_become_one(directory, command, whole):
    """Dropout is drawn by rank, so without it; then what was saved by two goes on in one."""
    calm = ("--set", "model.dropout=0", "--set", "train.precision=float64")
    results = cli_processes.run(*command("calm-2", *calm), ranks=2)
    assert [result.code for result in results] == [0, 0], results
    cli_processes.run(*command("fewer", *calm), ranks=2, kill=KillAt(13))
    (result,) = cli_processes.run(*command("fewer", *calm, "--resume"))
    assert result.code == 0, result
    final = f"checkpoints/step-{NUM_STEPS:08}"
    for kind in ("model", "optimizer", "recurrent_state"):
        found, expected = (
            load_file(directory / name / final / f"{kind}.safetensors")
            for name in ("fewer", "calm-2")
        )
        assert_close(found, expected, rtol=1e-9, atol=1e-9)


SCRIPT = """
import torch
torch.set_num_threads(1)
from tests.support import cli_processes
from elmore import cli
import os, sys
if sys.argv[1] == "dying":
    if os.environ["RANK"] == "1":
        cli_processes._prepare(cli_processes.KillAt(13))
    del sys.argv[1]
cli.main()
"""


def torchrun(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    script = folder / "script.py"
    script.write_text(SCRIPT)
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    root = str(Path(__file__).parents[2])
    return subprocess.run(
        [*start, str(script), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


@pytest.mark.slow
def test_under_torchrun_a_rank_that_dies_ends_all_and_the_run_can_be_resumed(
    directory, command, whole
):
    done = torchrun(directory, "dying", *command("torchrun"))
    assert done.returncode == 1, done.stderr
    assert "Signal 9 (SIGKILL)" in done.stderr
    results = cli_processes.run(*command("torchrun", "--resume"), ranks=2)
    assert [result.code for result in results] == [0, 0], results
    assert_same(directory / "torchrun", whole[2])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
@pytest.mark.parametrize("precision", ["bf16", "float32"])
@pytest.mark.parametrize("taught", [False, True])
def test_on_a_gpu_too_where_it_is_deterministic(directory, corpus, precision, taught):
    recipe, kind = str(directory / "recipe.toml"), f"gpu-{precision}-{taught}"
    teacher = toy_teacher.save(directory / f"{kind}-teacher") if taught else "none"

    def command(name: str, *more: str) -> list[str]:
        chosen = [
            "train.deterministic=true",
            f"train.precision={precision}",
            f"distillation.teacher={teacher}",
        ]
        settings = [part for value in chosen for part in ("--set", value)]
        out = str(directory / f"{kind}-{name}")
        return [
            "pretrain",
            recipe,
            str(corpus.path),
            "-o",
            out,
            "--device",
            "cuda",
            *settings,
            *more,
        ]

    assert cli_processes.run(*command("whole"))[0].code == 0
    assert cli_processes.run(*command("run"), kill=KillAt(13))[0].code == -signal.SIGKILL
    (result,) = cli_processes.run(*command("run", "--resume"))
    assert result.code == 0, result
    assert_same(directory / f"{kind}-run", directory / f"{kind}-whole")


def test_another_recipe_is_refused_by_the_keys_that_differ(directory, command, whole):
    before = files(whole[1])
    result = run_elmore(*command("whole-1", "--resume", "--set", "train.lr=0.5"))
    assert result.code == 1
    assert result.err.count("\n") == 1
    assert "this run has another recipe (train.lr 0.02 -> 0.5); resume with the same" in result.err
    assert files(whole[1]) == before
