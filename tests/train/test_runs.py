"""The run folder: checkpoints that are complete or absent, one line of metrics for each update."""

import json
import os
import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from elmore.errors import ConfigError, DataError, ElmoreError
from elmore.train import checkpoint as checkpoints
from elmore.train import optimizers, runs
from elmore.train.checkpoint import Checkpoint, Progress
from elmore.train.config import TrainConfig
from elmore.train.divergence import LossMean
from elmore.train.runs import Run
from tests.support.toy_training import Line

CPU = torch.device("cpu")


def trained(kind: str = "adamw") -> tuple[Line, torch.optim.Optimizer]:
    module = Line()
    optimizer = optimizers.build_optimizer(module, TrainConfig(optimizer=kind))
    for _ in range(3):
        optimizer.zero_grad()
        module((torch.randn(2, 3).double(), torch.randn(2).double()), None).loss.backward()
        optimizer.step()
    return module, optimizer


def progress(step: int, **more) -> Progress:
    values = {"best_score": 1.5, "evals_since_best": 2}
    values["loss_mean"] = LossMean(
        log_sum=4.0, weight=2.5, num_updates=3, best=3.5, last_good_step=3
    )
    return Progress(step=step, **(values | more))


def checkpoint(step: int) -> Checkpoint:
    return Checkpoint(progress(step), {"memory": torch.ones(2)})


@pytest.mark.parametrize("kind", ["adamw", "adagrad", "muon"])
def test_everything_comes_back(tmp_path, kind):
    run, (module, optimizer) = Run(tmp_path), trained(kind)
    saved = checkpoint(7)._replace(progress=progress(7, best_score=None))
    directory = run.save_checkpoint(module, optimizer, saved, keep=2)
    assert directory == tmp_path / "checkpoints" / "step-00000007"
    other, again = trained(kind)
    result = run.load_checkpoint(other, again, CPU)
    assert result is not None
    assert result.progress == saved.progress
    assert torch.equal(result.state["memory"], torch.ones(2))
    assert_close(other.state_dict(), module.state_dict(), rtol=0, atol=0)
    assert_close(again.state_dict()["state"], optimizer.state_dict()["state"], rtol=0, atol=0)


def test_the_newest_is_restored_and_the_oldest_go(tmp_path):
    run, (module, optimizer) = Run(tmp_path), trained()
    assert run.load_checkpoint(module, optimizer, CPU) is None
    for step in (2, 9, 10, 100):
        run.save_checkpoint(module, optimizer, checkpoint(step), keep=3)
    assert run.checkpoint_steps() == [9, 10, 100]
    assert run.load_checkpoint(module, optimizer, CPU).progress.step == 100


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("full")])
@pytest.mark.parametrize("calls", [0, 1, 2])
def test_a_full_disk_leaves_the_checkpoint_before_as_it_was(tmp_path, monkeypatch, calls, error):
    run, (module, optimizer) = Run(tmp_path), trained()
    run.save_checkpoint(module, optimizer, checkpoint(1), keep=1)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    left = iter(range(calls))

    def save_file(tensors, path):
        path.write_bytes(b"half")
        if next(left, None) is None:
            raise error

    monkeypatch.setattr(checkpoints, "save_file", save_file)
    with pytest.raises(
        DataError, match=r"step-00000002: could not be written .*the last good"
    ) as e:
        run.save_checkpoint(module, optimizer, checkpoint(2), keep=1)
    assert "step-00000001" in str(e.value)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert run.load_checkpoint(*trained(), CPU).progress.step == 1


@pytest.mark.parametrize(("step", "visible"), [(1, []), (2, [2])])
def test_a_kill_while_an_old_checkpoint_is_deleted_leaves_no_part_of_it(
    tmp_path, monkeypatch, step, visible
):
    run, (module, optimizer) = Run(tmp_path), trained()
    run.create_or_resume({}, resume=False)
    run.save_checkpoint(module, optimizer, checkpoint(1), keep=1)

    def delete_one_file(path, **_):
        (path / "optimizer.safetensors").unlink(missing_ok=True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", delete_one_file)
        with pytest.raises(KeyboardInterrupt):
            run.save_checkpoint(module, optimizer, checkpoint(step), keep=1)
    assert run.checkpoint_steps() == visible
    run.create_or_resume({}, resume=True)
    assert sorted(path.name for path in run.checkpoints.iterdir()) == [
        f"step-{step:08}" for step in visible
    ]


@pytest.mark.parametrize("kind", ["adamw", "adagrad", "muon"])
def test_without_the_optimizers_file_the_weights_come_back_alone(tmp_path, kind):
    run, (module, optimizer) = Run(tmp_path), trained(kind)
    directory = run.save_checkpoint(module, optimizer, checkpoint(7), keep=2)
    (directory / "optimizer.safetensors").unlink()
    other, fresh = Line(), optimizers.build_optimizer(Line(), TrainConfig(optimizer=kind))
    before = fresh.state_dict()
    found = run.load_checkpoint(other, fresh, CPU)
    assert found.progress == progress(7, restart_step=7)
    assert torch.equal(found.state["memory"], torch.ones(2))
    assert_close(other.state_dict(), module.state_dict(), rtol=0, atol=0)
    assert_close(fresh.state_dict(), before, rtol=0, atol=0)
    (directory / "recurrent_state.safetensors").unlink()
    assert run.load_checkpoint(other, fresh, CPU).state == {}


def test_an_optimizers_file_that_is_damaged_is_not_taken_for_an_absent_one(tmp_path):
    run, (module, optimizer) = Run(tmp_path), trained()
    directory = run.save_checkpoint(module, optimizer, checkpoint(7), keep=2)
    path = directory / "optimizer.safetensors"
    whole = path.read_bytes()
    for damage in (b"", whole[:-1], whole[:100]):
        path.write_bytes(damage)
        with pytest.raises(
            DataError, match=r"or only its optimizer\.safetensors for a warm restart"
        ):
            run.load_checkpoint(module, optimizer, CPU)
    path.unlink()
    path.symlink_to(directory / "gone")
    with pytest.raises(DataError, match="not a readable checkpoint"):
        run.load_checkpoint(module, optimizer, CPU)


@pytest.mark.parametrize("name", ["model.safetensors", "recurrent_state.safetensors", "state.json"])
def test_another_file_that_is_missing_or_damaged_is_an_error(tmp_path, name):
    run, (module, optimizer) = Run(tmp_path), trained()
    directory = run.save_checkpoint(module, optimizer, checkpoint(7), keep=2)
    (directory / "optimizer.safetensors").write_bytes(b"")
    (directory / name).unlink()
    with pytest.raises(ElmoreError, match=r"step-00000007") as missing:
        run.load_checkpoint(module, optimizer, CPU)
    (directory / "optimizer.safetensors").unlink()
    (directory / name).write_bytes(b"{}")
    with pytest.raises(ElmoreError, match=r"step-00000007") as damaged:
        run.load_checkpoint(module, optimizer, CPU)
    # A warm restart needs these files too.
    assert "warm restart" not in f"{missing.value} {damaged.value}"


def test_a_damaged_checkpoint_is_named(tmp_path):
    run, (module, optimizer) = Run(tmp_path), trained()
    directory = run.save_checkpoint(module, optimizer, checkpoint(3), keep=2)
    (directory / "optimizer.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match="step-00000003: not a readable checkpoint"):
        run.load_checkpoint(module, optimizer, CPU)
    shutil.copy(directory / "model.safetensors", directory / "optimizer.safetensors")
    with pytest.raises(DataError, match="step-00000003: not a readable checkpoint"):
        run.load_checkpoint(module, optimizer, CPU)


def test_a_checkpoint_of_another_version_is_refused(tmp_path):
    run, (module, optimizer) = Run(tmp_path), trained()
    directory = run.save_checkpoint(module, optimizer, checkpoint(3), keep=2)
    state = json.loads((directory / "state.json").read_text())
    (directory / "state.json").write_text(json.dumps(state | {"format": 99}))
    with pytest.raises(DataError, match="format 99 is newer than this elmore reads"):
        run.load_checkpoint(module, optimizer, CPU)


def test_a_folder_with_files_is_not_restarted(tmp_path):
    run = Run(tmp_path / "run")
    run.folder.mkdir()
    run.create_or_resume({"a": 1}, resume=False)
    run.save_checkpoint(*trained(), checkpoint(1), keep=1)
    with pytest.raises(DataError, match="exists and is not empty; pass --resume"):
        run.create_or_resume({"a": 1}, resume=False)
    run.create_or_resume({"a": 1}, resume=True)
    assert run.checkpoint_steps() == [1]


@pytest.mark.parametrize("name", ["notes.txt", "best", "softmax", "checkpoints", ".best.abc"])
def test_beside_a_recipe_nothing_that_is_worth_keeping_is_written_over(tmp_path, name):
    run = Run(tmp_path / "run")
    run.create_or_resume({"a": 1}, resume=False)
    (run.folder / name).mkdir()
    with pytest.raises(DataError, match="exists and is not empty; pass --resume"):
        run.create_or_resume({"a": 2}, resume=False)
    assert json.loads((run.folder / "recipe.json").read_text()) == {"format": runs.FORMAT, "a": 1}


def test_a_run_without_checkpoints_is_restarted(tmp_path):
    run = Run(tmp_path / "run")
    run.create_or_resume({"a": 1}, resume=False)
    run.append_metrics([{"step": 1, "loss": 2.0}])
    for name in (
        "recipe.json.new",
        f".recipe.json.{'0' * 16}.new",
        "events.out.tfevents.1.host.2.3",
    ):
        (run.folder / name).write_bytes(b"half")
    run.create_or_resume({"a": 2}, resume=False)
    assert json.loads((run.folder / "recipe.json").read_text()) == {"format": runs.FORMAT, "a": 2}
    assert not run.metrics.exists()


@pytest.mark.parametrize(
    "files", [{"metrics.jsonl": "mine"}, {"recipe.json": '{"eggs": 3}', "metrics.jsonl": ""}]
)
def test_other_files_are_not_a_run_without_checkpoints(tmp_path, files):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match="exists and is not empty"):
        Run(tmp_path).create_or_resume({"a": 1}, resume=False)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


@pytest.mark.parametrize("resume", [False, True])
def test_one_process_at_a_time_trains_in_a_folder_and_others_read(tmp_path, resume):
    with Run(tmp_path / "run") as run:
        run.create_or_resume({"a": 1}, resume=False)
        run.append_metrics([{"step": 1, "loss": 2.0}])
        with pytest.raises(
            DataError, match=f"run: process {os.getpid()} on .* working there since"
        ):
            Run(run.folder).create_or_resume({"a": 1}, resume=resume)
        run.save_checkpoint(*trained(), checkpoint(1), keep=1)
        assert Run(run.folder).checkpoint_steps() == [1]
        assert Run(run.folder).load_checkpoint(*trained(), CPU).progress.step == 1
        assert run.metrics.read_text().count("\n") == 1
    Run(run.folder).create_or_resume({"a": 1}, resume=True)


@pytest.mark.parametrize("resume", [False, True])
def test_the_lock_of_a_run_that_was_killed_is_no_stray_file(tmp_path, resume):
    run = Run(tmp_path / "run")
    if resume:
        run.create_or_resume({"a": 1}, resume=False)
        run.close()
    run.folder.mkdir(exist_ok=True)
    (run.folder / "lock").write_text(' {"pid": 1, "host": "x", "since": "then"}\n')
    with run:
        run.create_or_resume({"a": 1}, resume=resume)
    assert [path.name for path in run.folder.iterdir()] == ["recipe.json"]


def test_a_run_that_is_refused_is_open_to_others(tmp_path):
    run = Run(tmp_path / "run")
    run.create_or_resume({"a": 1}, resume=False)
    with pytest.raises(ConfigError, match="another recipe"):
        run.create_or_resume({"a": 2}, resume=True)
    Run(run.folder).create_or_resume({"a": 1}, resume=True)


def test_a_missing_run_is_not_resumed(tmp_path):
    with pytest.raises(DataError, match="there is no run to resume"):
        Run(tmp_path / "run").create_or_resume({}, resume=True)
    assert not (tmp_path / "run").exists()


def test_another_recipe_is_refused_by_the_keys_that_differ(tmp_path):
    old = {"train": {"lr": 0.1, "betas": [0.9, 0.99], "steps": None}, "gone": 1, "same": "x"}
    new = {"train": {"lr": 0.2, "betas": (0.9, 0.99), "steps": None}, "come": 2, "same": "x"}
    run = Run(tmp_path / "run")
    run.create_or_resume(old, resume=False)
    with pytest.raises(ConfigError, match="this run has another recipe") as error:
        run.create_or_resume(new, resume=True)
    assert "(come None -> 2, gone 1 -> None, train.lr 0.1 -> 0.2)" in str(error.value)


def test_partial_files_of_a_killed_run_are_removed(tmp_path):
    run = Run(tmp_path / "run")
    run.create_or_resume({}, resume=False)
    (run.folder / ".best.mine").mkdir()
    for name in (f".best.{'0' * 16}.new", f"checkpoints/.step-00000010.{'0' * 16}.new"):
        (run.folder / name / "new").mkdir(parents=True)
        (run.folder / name / "lock").touch()
    (run.folder / "notes.txt").write_text("mine")
    with run:
        run.create_or_resume({}, resume=True)
    assert sorted(path.name for path in run.folder.iterdir()) == [
        ".best.mine",
        "checkpoints",
        "notes.txt",
        "recipe.json",
    ]
    assert list(run.checkpoints.iterdir()) == []


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 40))
def test_lines_of_updates_that_come_again_are_forgotten(tmp_path_factory, logged, saved, cut):
    """Also where a kill cut the last line."""
    run = Run(tmp_path_factory.mktemp("run"))
    run.append_metrics([{"step": step, "loss": step / 3} for step in range(1, logged + 1)])
    text = run.metrics.read_bytes()
    whole = text[: max(0, len(text) - cut)]
    run.metrics.write_bytes(whole)
    run.truncate_metrics(saved)
    complete = sum(step <= saved for step in range(1, whole.count(b"\n") + 1))
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    # a line that lost nothing but its end of line is whole as well
    assert len(lines) in (complete, min(complete + 1, saved))
    assert lines == [{"step": step, "loss": step / 3} for step in range(1, len(lines) + 1)]
    run.append_metrics([{"step": len(lines) + 1, "loss": 0.0}])
    assert len(run.metrics.read_text().splitlines()) == len(lines) + 1


@pytest.mark.parametrize(
    "values",
    [
        {"step": []}, {"step": "3"}, {"step": 4}, {"evals_since_best": None}, {"more": 1},
        {"best_score": [1]}, {"restart_step": 4}, {"restart_step": -1}, {"loss_mean": "high"},
        {"num_halvings": -1}, {"loss_mean": {"log_sum": 10**400}},
    ],
)  # fmt: skip
def test_a_state_with_something_else_in_it_is_named(tmp_path, values):
    run, (module, optimizer) = Run(tmp_path), trained()
    directory = run.save_checkpoint(module, optimizer, checkpoint(3), keep=2)
    state = json.loads((directory / "state.json").read_text())
    (directory / "state.json").write_text(json.dumps(state | values))
    with pytest.raises(ElmoreError, match=r"step-00000003.*state\.json"):
        run.load_checkpoint(module, optimizer, CPU)


@pytest.mark.parametrize(
    "line", ["[1]", "{}", '"step"', '{"step": [1], "loss": 1}', '{"step": 1, "loss": "low"}', "{"]
)
def test_a_damaged_line_of_metrics_is_named(tmp_path, line):
    run = Run(tmp_path)
    run.metrics.write_text(f'{line}\n{{"step": 2, "loss": 1.0}}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl: line 1: "):
        run.truncate_metrics(3)
    assert run.metrics.read_text().startswith(line)


@pytest.mark.parametrize("kind", ["adamw", "adagrad", "muon"])
@pytest.mark.parametrize("damage", ["shape", "name", "number", "integers"])
def test_an_optimizer_of_other_weights_is_refused_when_it_is_restored(tmp_path, kind, damage):
    run, (module, optimizer) = Run(tmp_path), trained(kind)
    directory = run.save_checkpoint(module, optimizer, checkpoint(3), keep=2)
    path = directory / "optimizer.safetensors"
    tensors = load_file(path)
    name = next(name for name, tensor in tensors.items() if tensor.dim())
    odd = {"shape": tensors[name][None], "integers": tensors[name].long()}
    if damage in odd:
        tensors[name] = odd[damage]
    else:
        tensors["0.other" if damage == "name" else "99.step"] = tensors.pop(name)
    save_file(tensors, path)
    with pytest.raises(DataError, match="step-00000003: not a readable checkpoint"):
        run.load_checkpoint(module, optimizer, CPU)


def test_a_path_that_is_not_utf8_is_refused_before_training(tmp_path):
    """Torch reads no file at such a path, and checkpoints would be lost."""
    for resume in (False, True):
        run = Run(tmp_path / os.fsdecode(b"caf\xe9"))
        with pytest.raises(DataError, match="the path is not UTF-8"):
            run.create_or_resume({"train": {}}, resume=resume)
    assert list(tmp_path.iterdir()) == []
