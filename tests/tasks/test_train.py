import json
import os
import re
import sys
import threading
import types

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from elmore import lock
from elmore.errors import ConfigError, DataError, ElmoreError
from elmore.tasks import checkpoint, registry, trained_task
from elmore.tasks import train as train_module
from elmore.tasks.checkpoint import load_task
from elmore.tasks.data.columns import TaggedSentence
from elmore.tasks.data.datasets import TaskDatasets
from elmore.tasks.embedding.spec import open_embedders, parse_spec
from elmore.tasks.train import TaskTrainable, TrainingStoppedError, train
from elmore.tasks.trained_task import TrainedTask
from elmore.train.distributed import SINGLE_PROCESS
from elmore.train.fit import Report
from elmore.weights import folder
from tests.support import toy_tasks

PLAIN = {"embedder": "none", "device": "cpu"}


def ner(*more):
    kind = registry.find_task("ner")
    return kind, registry.load_recipe(kind, None, [*toy_tasks.small("ner"), *more])


def test_train_returns_the_best_weights_and_their_scores(shared_run):
    run = shared_run()
    best = max(report.scores["f1"] for report in run.reports if report.scores)
    assert run.task.scores["f1"] == best
    saved = load_file(run.out / "best" / "model.safetensors")
    torch.testing.assert_close(run.task.network.state_dict(), saved, rtol=0, atol=0)
    assert not run.task.network.training


def test_a_run_of_a_version_with_fewer_settings_is_resumed(copied_run):
    """They have the value that the version without them meant, and no other."""
    data, out = copied_run("squad")
    path = out / "recipe.json"
    recipe = json.loads(path.read_text())
    assert recipe["data"].pop("split_sentences") is False
    assert recipe["model"].pop("cell") == "lstm"
    assert recipe["elmo"].pop("learn_gamma") is True
    path.write_text(json.dumps(recipe))
    kind = registry.find_task("squad")

    def resume(*more: str) -> TrainedTask:
        settings = [*toy_tasks.small("squad"), "train.epochs=2", *more]
        recipe = registry.load_recipe(kind, None, settings)
        return train(kind, recipe, data, data, out, **PLAIN, resume=True)

    assert resume().scores
    with pytest.raises(ConfigError, match=r"another recipe \(model\.cell None -> 'gru'\)"):
        resume("model.cell=gru")
    with pytest.raises(ConfigError, match=r"another recipe \(elmo\.learn_gamma None -> False\)"):
        resume("elmo.learn_gamma=false")


def test_better_weights_remove_the_test_scores_of_earlier_ones(copied_run):
    """A report would show them as scores of the weights that are there."""
    data, out = copied_run()
    names = {"test.json", "test_counts.json"}
    for name in names:
        (out / name).write_text("{}")

    def resume(epochs: int) -> set[str]:
        kind, recipe = ner(f"train.epochs={epochs}")
        train(kind, recipe, data, data, out, **PLAIN, resume=True)
        return names & {path.name for path in out.iterdir()}

    assert resume(2) == names  # nothing is left to do
    assert resume(12) == set()


def test_a_folder_in_which_another_process_trains_is_left_alone(tmp_path):
    with (
        lock.acquire(tmp_path / "run" / "lock"),
        pytest.raises(DataError, match=r"run: process \d+ on .* working there since"),
    ):
        toy_tasks.train(tmp_path)
    assert list((tmp_path / "run").iterdir()) == []


def test_an_error_in_the_report_handler_ends_training_and_releases_the_folder(
    tmp_path,
):
    kind, recipe = ner("train.epochs=3")
    data = toy_tasks.write("ner", tmp_path / "ner.txt")
    steps = []

    class EnoughError(Exception):
        pass

    def begin(after: int, **options):
        def note(report):
            steps.append(report.step)
            if report.step >= after:
                with pytest.raises(DataError, match="working there"):
                    train(kind, recipe, data, data, tmp_path / "run", **PLAIN, resume=True)
                raise EnoughError

        options |= {"on_report": note}
        return train(kind, recipe, data, data, tmp_path / "run", **PLAIN, **options)

    with pytest.raises(EnoughError):
        begin(after=6)
    assert steps == [3, 6]
    trained = begin(after=99, resume=True)
    assert steps == [3, 6, 9]
    assert begin(after=99, resume=True).scores == trained.scores  # nothing is left to do
    assert steps == [3, 6, 9]


def test_a_signal_is_an_error_that_says_the_run_can_be_resumed(tmp_path, monkeypatch):
    def stopped(*_, **__):
        yield Report(1, 9, {}, {}, improved=False, stop_reason="SIGTERM", unit="tokens")

    monkeypatch.setattr(train_module, "fit", stopped)
    with pytest.raises(TrainingStoppedError, match="run: stopped by SIGTERM after update 1"):
        toy_tasks.train(tmp_path)


def test_a_fine_tuned_bilm_is_saved_and_without_a_cache(tmp_path, bilm, cache):
    run = toy_tasks.train(tmp_path, "ner", "elmo.freeze=false", embedder=f"elmo:{bilm}")
    tensors = load_file(run.out / "best" / "model.safetensors")
    before = folder.load(bilm).model.state_dict()
    after = {
        name.removeprefix("embedding.layers.bilm."): tensor
        for name, tensor in tensors.items()
        if ".bilm." in name
    }
    assert set(after) == set(before)
    assert any(not torch.equal(after[name], before[name]) for name in before)
    assert not list(cache.rglob("*.npy"))
    assert load_task(run.out, device="cpu").evaluate(run.data) == run.task.scores


def test_the_biLM_runs_once_for_each_text_however_many_epochs(tmp_path, bilm, runs):
    toy_tasks.train(tmp_path, "ner", "train.epochs=3", embedder=f"elmo:{bilm}")
    assert len(runs) == 1  # training and dev sentences are the same here
    toy_tasks.train(tmp_path, "ner", "train.seed=1", embedder=f"elmo:{bilm}", out="again")
    assert len(runs) == 1


def test_the_time_of_layers_and_of_an_epoch_is_logged(tmp_path, bilm, caplog):
    caplog.set_level("INFO", "elmore.tasks")
    toy_tasks.train(tmp_path, embedder=f"elmo:{bilm}", out="first")
    first = [record.getMessage() for record in caplog.records]
    # the dev sentences are the training ones here: found, once these have been computed
    assert re.fullmatch(r"layers of 40 sentences: computed in part, \d+\.\d s, 0 MB", first[0])
    assert re.fullmatch(r"an epoch took .* s; the biLM in each would add \d+\.\d s", first[1])
    caplog.clear()
    toy_tasks.train(tmp_path, embedder=f"elmo:{bilm}", out="second")
    second = [record.getMessage() for record in caplog.records]
    assert second[0].startswith("layers of 40 sentences: found in the cache, ")
    assert re.fullmatch(r"an epoch took \d+\.\d s, without the biLM", second[1])
    caplog.clear()
    toy_tasks.train(tmp_path, out="third")
    assert not caplog.records


def test_a_type_of_names_that_training_never_saw_is_refused_before_it(tmp_path, shared_run):
    kind, recipe = ner("train.epochs=1")
    good = toy_tasks.write("ner", tmp_path / "good.txt")
    bad = tmp_path / "bad.txt"
    bad.write_text("Ann\tB-person\n\nIt\tB-thing\n")
    message = r"bad\.txt: example 2 has the label 'B-thing', which no training example has; expect"
    for files in ({"dev": bad}, {"dev": good, "test": bad}):
        with pytest.raises(DataError, match=message):
            train(kind, recipe, good, out=tmp_path / "run", **PLAIN, **files)
        assert not (tmp_path / "run").exists()
    with pytest.raises(DataError, match=message):
        shared_run().task.evaluate(bad)


def test_a_name_may_have_a_continuation_tag_unseen_in_training(tmp_path):
    (tmp_path / "short.txt").write_text("Ann\tB-person\n\n" * 4)
    (tmp_path / "long.txt").write_text("Ann\tB-person\nLee\tI-person\n")
    kind, recipe = ner("train.epochs=1")
    files = tmp_path / "short.txt", tmp_path / "long.txt"
    trained = train(kind, recipe, *files, tmp_path / "run", **PLAIN)
    assert trained.labels == ["B-person", "I-person", "O"]


def test_a_rare_tag_that_training_never_saw_costs_score_and_a_warning(copied_run, caplog):
    data, out = copied_run("pos")
    data.write_text(data.read_text().replace("VBD", "VBZ", 1))
    assert load_task(out, device="cpu").evaluate(data)["accuracy"] < 100
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "1 of 20 examples have labels that no training example has, such as 'VBZ'" in warning


def test_an_empty_split_is_refused_whatever_the_task(tmp_path, monkeypatch):
    kind = registry.find_task("pos")
    monkeypatch.setattr(kind, "read_examples", lambda self, path: [])
    files = (tmp_path / "x", tmp_path / "x", tmp_path / "run")
    with pytest.raises(DataError, match=r"x: no examples found, expected at least one"):
        train(kind, registry.load_recipe(kind), *files, **PLAIN)


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    kind, recipe = ner()
    files = (tmp_path / "empty.txt", tmp_path / "empty.txt", tmp_path / "run")
    with pytest.raises(DataError, match=r"empty\.txt"):
        train(kind, recipe, *files, **PLAIN)
    assert not (tmp_path / "run").exists()


def test_tensorboard_gets_the_losses_and_the_scores(tmp_path, monkeypatch):
    """A stand-in for the package, which need not be installed."""
    told = []

    class SummaryWriter:
        def __init__(self, folder, **options):
            assert folder == str(tmp_path / "run")

        def add_scalar(self, name, value, step):
            told.append((name, step))

        def close(self):
            told.append("closed")

    package = types.ModuleType("torch.utils.tensorboard")
    package.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", package)
    last = toy_tasks.train(tmp_path, "ner", "train.epochs=1").reports[-1].step
    assert {("train/loss", last), ("valid/f1", last), ("train/per_second", last)} <= set(told)
    assert told[-1] == "closed"


def test_small_uneven_batches_make_the_updates_of_a_large_one(tmp_path, bilm):
    """Also the penalty on the mix: it counts once an update, not once a batch."""
    weights = []
    calm = ["model.dropout=0", "elmo.dropout=0", "elmo.penalty=5", "train.precision=float64"]
    for number, more in enumerate(
        (["batch_size=20"], ["batch_size=7", "train.grad_accum_steps=3"])
    ):
        run = toy_tasks.train(
            tmp_path, "pos", *calm, *more, embedder=f"elmo:{bilm}", out=str(number)
        )
        (last,) = (run.out / "checkpoints").iterdir()
        weights.append(load_file(last / "model.safetensors"))
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-6, atol=1e-9)


def test_early_stopping_keeps_the_best(tmp_path):
    settings = ["train.epochs=40", "train.patience=2", "train.lr=0.01"]
    run = toy_tasks.train(tmp_path, "ner", *settings)
    assert "no better f1 in 2 evaluations" in run.reports[-1].stop_reason
    best = max(report.scores["f1"] for report in run.reports if report.scores)
    assert run.task.evaluate(run.data)["f1"] == best


def test_other_data_or_another_embedder_is_not_resumed(copied_run, tmp_path, vectors):
    data, out = copied_run()
    kind, recipe = ner("train.epochs=2")
    options = {"resume": True, "device": "cpu"}
    with pytest.raises(ConfigError, match=r"another recipe .*embedder"):
        train(kind, recipe, data, data, out, embedder=f"glove:{vectors}", **options)
    toy_tasks.write("ner", data, 10)
    with pytest.raises(ConfigError, match=r"another recipe \(data\.sha256\.dev"):
        train(kind, recipe, data, data, out, embedder="none", **options)


def test_a_run_resumes_with_moved_vectors_but_not_with_other_data(copied_run, shared_run, tmp_path):
    data, out = copied_run("ner", "glove")
    moved = toy_tasks.vectors(tmp_path / "moved.txt")
    reports = []
    options = {
        "embedder": f"glove:{moved}",
        "device": "cpu",
        "resume": True,
        "on_report": reports.append,
    }
    kind, recipe = ner("train.epochs=2")
    train(kind, recipe, data, data, out, **options)
    assert reports == []
    kind, recipe = ner("train.epochs=2", "data.encoding=latin-1")
    with pytest.raises(ConfigError, match=r"another recipe \(data\.encoding 'utf-8' -> 'latin-1'"):
        train(kind, recipe, data, data, out, **options)


def test_examples_are_known_by_the_bytes_of_their_file_not_by_their_class(copied_run, monkeypatch):
    data, out = copied_run()

    def unknown(self):
        raise AssertionError("an example was written out to be known again")

    monkeypatch.setattr(TaggedSentence, "__repr__", unknown)
    kind, recipe = ner("train.epochs=2")
    reports = []
    train(kind, recipe, data, data, out, **PLAIN, resume=True, on_report=reports.append)
    assert reports == []


def test_piped_input_is_identified_by_its_content(tmp_path):
    def piped(text):
        path = tmp_path / "pipe"
        os.mkfifo(path)
        writer = threading.Thread(target=path.write_text, args=(text,))
        writer.start()
        kind, recipe = ner("train.epochs=1")
        resume, reports = (tmp_path / "run").exists(), []
        files = (path, tmp_path / "dev", tmp_path / "run")
        try:
            train(kind, recipe, *files, **PLAIN, resume=resume, on_report=reports.append)
            return reports
        finally:
            writer.join()
            path.unlink()

    text = toy_tasks.write("ner", tmp_path / "dev").read_text()
    assert piped(text)
    assert piped(text) == []
    with pytest.raises(ConfigError, match=r"another recipe \(data\.sha256\.train"):
        piped(text.replace("Ann", "Eve"))


def test_a_batch_too_large_for_the_gpu_is_reported_in_one_sentence(tmp_path, monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        yield

    monkeypatch.setattr(train_module, "fit", full)
    message = r"batches of 8 examples do not fit .*\(CUDA out of memory\); lower batch_size"
    with pytest.raises(ConfigError, match=message):
        toy_tasks.train(tmp_path)


def test_a_disk_that_fills_while_the_weights_are_written_is_reported_in_one_sentence(
    tmp_path, monkeypatch
):
    def full(*_, **__):
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(ElmoreError, match=r"best: could not be written \(No space left on device"):
        toy_tasks.train(tmp_path, "ner", "train.epochs=1")
    assert not (tmp_path / "run" / "best").exists()


def test_more_processes_than_examples_to_a_batch_are_refused(tmp_path):
    kind, recipe = ner("batch_size=2")
    task, data = kind(recipe), toy_tasks.write("ner", tmp_path / "ner.txt")
    datasets = TaskDatasets(
        task,
        data,
        data,
        embedder="none",
        dist_env=SINGLE_PROCESS._replace(world_size=3),
        device=torch.device("cpu"),
    )
    new = trained_task.build(task, ["O"], [], open_embedders(parse_spec("none"), device="cpu"))
    with pytest.raises(ConfigError, match="batches of 2 examples cannot be divided among 3 proces"):
        TaskTrainable(new, datasets.train[:4], datasets)


def test_a_model_at_a_path_that_is_not_utf8_is_recorded_and_the_run_is_resumed(tmp_path):
    kind, recipe = ner("train.epochs=1")
    data, out, bilm = tmp_path / "data.txt", tmp_path / "run", tmp_path / os.fsdecode(b"caf\xe9")
    toy_tasks.write("ner", data)
    toy_tasks.bilm(bilm)
    for resume in (False, True):
        train(kind, recipe, data, data, out, embedder=f"elmo:{bilm}", device="cpu", resume=resume)
    recorded = json.loads((out / "recipe.json").read_text())["embedder"]["specification"]
    assert recorded == f"elmo:{bilm}"
    assert load_task(out, device="cpu").scores
