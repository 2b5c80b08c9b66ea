import json
import os
import re
import shutil
import sys
import threading
import types
from contextlib import closing
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from elmore import lock
from elmore.errors import ConfigError, DataError, ElmoreError, WeightsError
from elmore.tasks import checkpoint, registry, run
from elmore.tasks.coref.document import ordered
from elmore.tasks.coref.model import CorefModel
from elmore.tasks.data.columns import Tagged
from elmore.tasks.registry import TASKS
from elmore.tasks.task import Task
from elmore.train.distributed import SINGLE_PROCESS
from elmore.weights import folder
from tests.support import toy_tasks

PLAIN = {"embedder": "none", "device": "cpu"}


def trained(tmp_path, name="ner", *more, embedder="none", out="run", **options):
    kind = registry.find_task(name)
    data = toy_tasks.write(name, tmp_path / f"{name}.txt")
    recipe = registry.load_recipe(kind, None, [*toy_tasks.small(name), "train.epochs=2", *more])
    reports = run.train(
        kind, recipe, data, data, tmp_path / out, embedder=embedder, device="cpu", **options
    )
    return list(reports), data, tmp_path / out


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("embedder", ["none", "glove", "elmo", "both"])
def test_a_saved_run_scores_and_predicts_as_it_did(tmp_path, vectors, bilm, name, embedder):
    spec = {
        "none": "none",
        "glove": f"glove:{vectors}",
        "elmo": f"elmo:{bilm}",
        "both": f"glove:{vectors}+elmo:{bilm}",
    }[embedder]
    reports, data, out = trained(tmp_path, name, embedder=spec)
    best = max(
        report.scores[registry.find_task(name).metric] for report in reports if report.scores
    )
    scores = run.evaluate(out, data, device="cpu")
    assert scores[registry.find_task(name).metric] == best
    assert checkpoint.load(out).scores == scores
    solved = checkpoint.load(out / "best", device="cpu")
    texts = [toy_tasks.typed(name, example) for example in solved.task.read(data)]
    asked = [solved.task.example(text, tokenized=True) for text in texts]  # without the truth
    expected = solved.predict(asked, solved.reader.computed(solved.sentences(asked)))
    found = list(run.predict(out, texts, tokenized=True, device="cpu"))
    assert [prediction.found for prediction in found] == expected
    assert all(len(p.data["tags"]) == len(p.data["tokens"]) for p in found if "tags" in p.data)


def test_a_folder_in_which_another_process_trains_is_left_alone(tmp_path):
    with (
        lock.acquire(tmp_path / "run" / "lock"),
        pytest.raises(DataError, match=r"run: process \d+ on .* at work there since"),
    ):
        trained(tmp_path)
    assert list((tmp_path / "run").iterdir()) == []


def test_reports_come_one_by_one_and_the_folder_is_free_once_they_are_closed_or_dropped(tmp_path):
    kind = registry.find_task("ner")
    data = toy_tasks.write("ner", tmp_path / "ner.txt")
    recipe = registry.load_recipe(kind, None, [*toy_tasks.small("ner"), "train.epochs=3"])

    def begin(**options):
        return run.train(kind, recipe, data, data, tmp_path / "run", **PLAIN, **options)

    with closing(begin()) as reports:
        assert next(reports).step == next(iter(reports)).step - 3
        assert reports.last.step == 6
        with pytest.raises(DataError, match="at work there"):
            next(begin(resume=True))
    assert list(reports) == []
    assert next(begin(resume=True)).step == 9  # dropped as soon as it has come
    assert list(begin(resume=True)) == []


def test_only_what_was_trained_is_saved(tmp_path, vectors, bilm):
    _, _, out = trained(tmp_path, embedder=f"glove:{vectors}+elmo:{bilm}")
    assert {path.name for path in (out / "best").iterdir()} == checkpoint.FILES
    names = set(load_file(out / "best" / "model.safetensors"))
    assert {name for name in names if name.startswith("embedding.")} == {
        "embedding.words.unknown",
        "embedding.mixes.input.mix.weights",
        "embedding.mixes.input.mix.gamma",
        "embedding.characters.embedding.weight",
        "embedding.characters.convolutions.0.weight",
        "embedding.characters.convolutions.0.bias",
    }
    last = next((out / "checkpoints").iterdir())
    assert set(load_file(last / "model.safetensors")) == names


def test_a_fine_tuned_bilm_is_saved_and_without_a_cache(tmp_path, bilm, cache):
    _, data, out = trained(tmp_path, "ner", "elmo.freeze=false", embedder=f"elmo:{bilm}")
    tensors = load_file(out / "best" / "model.safetensors")
    before = folder.load(bilm).model.state_dict()
    after = {
        name.removeprefix("embedding.layers.bilm."): tensor
        for name, tensor in tensors.items()
        if ".bilm." in name
    }
    assert set(after) == set(before)
    assert any(not torch.equal(after[name], before[name]) for name in before)
    assert not cache.exists()
    assert run.evaluate(out, data, device="cpu") == checkpoint.load(out).scores


@pytest.mark.parametrize("name", TASKS)
def test_what_is_predicted_does_not_depend_on_the_company(tmp_path, bilm, name):
    _, data, out = trained(tmp_path, name, embedder=f"elmo:{bilm}")
    read = checkpoint.load(out).task.read(data)
    texts = [*(toy_tasks.typed(name, example) for example in read), *toy_tasks.odd(name)]
    together = [p.found for p in run.predict(out, texts, tokenized=True, device="cpu")]
    for text, expected in zip(texts, together, strict=True):
        (alone,) = run.predict(out, [text], tokenized=True, device="cpu")
        assert alone.found == expected
    assert "" not in texts or together[texts.index("")] == []


def test_the_biLM_runs_once_for_each_text_however_many_epochs(tmp_path, bilm, monkeypatch):
    from elmore.embed.embedder import Embedder

    counted = []
    stream = Embedder.stream

    def counting(self, texts, **choices):
        counted.append(1)
        return stream(self, texts, **choices)

    monkeypatch.setattr(Embedder, "stream", counting)
    trained(tmp_path, "ner", "train.epochs=3", embedder=f"elmo:{bilm}")
    assert len(counted) == 1  # training and held-out sentences are the same here
    trained(tmp_path, "ner", "train.seed=1", embedder=f"elmo:{bilm}", out="again")
    assert len(counted) == 1


def test_scoring_a_text_once_keeps_no_layers_and_needs_none_kept(
    tmp_path, bilm, cache, monkeypatch
):
    _, _, out = trained(tmp_path, embedder=f"elmo:{bilm}")
    other = toy_tasks.write("ner", tmp_path / "other.txt", 13)
    before = sorted(cache.rglob("*.npy"))
    expected = run.evaluate(out, other, device="cpu", keep=True)
    (kept,) = set(cache.rglob("*.npy")) - set(before)
    assert run.evaluate(out, other, device="cpu") == expected
    kept.unlink()
    monkeypatch.setattr(run, "_AT_ONCE", 4)
    assert run.evaluate(out, other, device="cpu") == expected
    monkeypatch.setattr(run, "_TOKENS_AT_ONCE", 1)
    assert run.evaluate(out, other, device="cpu") == expected
    assert sorted(cache.rglob("*.npy")) == before


def test_what_layers_cost_and_an_epoch_takes_is_told(tmp_path, bilm, caplog):
    caplog.set_level("INFO", "elmore.tasks.timing")
    trained(tmp_path, embedder=f"elmo:{bilm}", out="first")
    first = [record.getMessage() for record in caplog.records]
    # the held-out sentences are the training ones here: found, as soon as these were computed
    assert re.fullmatch(r"layers of 40 sentences: computed in part, \d+\.\d s, 0 MB", first[0])
    assert re.fullmatch(r"an epoch took .* s; the biLM in each would add \d+\.\d s", first[1])
    caplog.clear()
    trained(tmp_path, embedder=f"elmo:{bilm}", out="second")
    second = [record.getMessage() for record in caplog.records]
    assert second[0].startswith("layers of 40 sentences: found in the cache, ")
    assert re.fullmatch(r"an epoch took \d+\.\d s, without the biLM", second[1])
    caplog.clear()
    trained(tmp_path, out="third")
    assert not caplog.records


def test_predictions_are_written_in_columns_that_conlleval_reads(tmp_path):
    _, data, out = trained(tmp_path)
    path = tmp_path / "predicted.txt"
    scores = run.evaluate(out, data, device="cpu", predictions=path)
    kind = registry.find_task("ner")
    predicted = kind(registry.load_recipe(kind)).read(path)
    gold = kind(registry.load_recipe(kind, None, ["data.column=1"])).read(path)
    assert gold == kind(registry.load_recipe(kind)).read(data)
    tags = [example.tags for example in predicted]
    assert kind(registry.load_recipe(kind)).score(gold, tags) == scores
    assert path.read_text().startswith("Ann B-person ")


def test_predicted_clusters_are_written_as_the_name_says_and_read_again(tmp_path, monkeypatch):
    _, data, out = trained(tmp_path, "coref")
    clusters = [[[0, 0, 2], [1, 0, 1]]]
    monkeypatch.setattr(
        CorefModel, "predict", lambda self, embedded, features: [clusters] * len(features["rows"])
    )
    coref = checkpoint.load(out).task
    gold = coref.read(data)
    for name, start in (("found.conllu", "# newdoc id = story0"), ("found", "#begin document (")):
        scores = run.evaluate(out, data, device="cpu", predictions=tmp_path / name)
        assert (tmp_path / name).read_text().startswith(start)
        found = coref.read(tmp_path / name)
        assert [document.sentences for document in found] == [d.sentences for d in gold]
        assert [document.clusters for document in found] == [ordered(clusters)] * 2
        assert coref.score(gold, [clusters] * 2) == scores


def test_predictions_of_a_task_without_a_format_are_lines_of_json(tmp_path):
    _, data, out = trained(tmp_path, "pos")
    solved = checkpoint.load(out, device="cpu")
    read = solved.task.read(data)
    found = solved.predict(read, None)
    lines = list(Task.written(solved.task, read, found))
    assert [json.loads(line)["tags"] for line in lines] == found
    assert len(lines) == 20


def test_a_place_for_predictions_is_looked_at_first(tmp_path):
    _, data, out = trained(tmp_path)
    before = data.read_bytes()
    for place, message in (
        (data, "these are the examples themselves"),
        (tmp_path, "expected the name of a file"),
        (tmp_path / "none" / "x", "expected the name of a file"),
    ):
        with pytest.raises(DataError, match=message):
            run.evaluate(out, data, device="cpu", predictions=place)
    assert data.read_bytes() == before


def test_a_type_of_names_that_training_never_saw_is_refused_before_it(tmp_path):
    kind = registry.find_task("ner")
    recipe = registry.load_recipe(kind, None, [*toy_tasks.small("ner"), "train.epochs=1"])
    good = toy_tasks.write("ner", tmp_path / "good.txt")
    bad = tmp_path / "bad.txt"
    bad.write_text("Ann\tB-person\n\nIt\tB-thing\n")
    message = r"bad\.txt: example 2 has the label 'B-thing', which no training example has; expect"
    for files in ({"valid": bad}, {"valid": good, "test": bad}):
        with pytest.raises(DataError, match=message):
            list(run.train(kind, recipe, good, out=tmp_path / "run", **PLAIN, **files))
        assert not (tmp_path / "run").exists()
    list(run.train(kind, recipe, good, good, tmp_path / "run", **PLAIN))
    with pytest.raises(DataError, match=message):
        run.evaluate(tmp_path / "run", bad, device="cpu")


def test_a_name_may_go_on_though_none_did_in_training(tmp_path):
    (tmp_path / "short.txt").write_text("Ann\tB-person\n\n" * 4)
    (tmp_path / "long.txt").write_text("Ann\tB-person\nLee\tI-person\n")
    kind = registry.find_task("ner")
    recipe = registry.load_recipe(kind, None, [*toy_tasks.small("ner"), "train.epochs=1"])
    files = tmp_path / "short.txt", tmp_path / "long.txt"
    list(run.train(kind, recipe, *files, tmp_path / "run", **PLAIN))
    assert checkpoint.load(tmp_path / "run").labels == ["B-person", "I-person", "O"]


def test_a_rare_tag_that_training_never_saw_costs_score_and_a_warning(tmp_path, caplog):
    _, data, out = trained(tmp_path, "pos")
    text = data.read_text()
    data.write_text(text.replace("VBD", "VBZ", 1))
    assert run.evaluate(out, data, device="cpu")["accuracy"] < 100
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "1 of 20 examples have labels that no training example has, as 'VBZ'" in warning


def test_an_empty_split_is_refused_whatever_the_task(tmp_path, monkeypatch):
    kind = registry.find_task("pos")
    monkeypatch.setattr(kind, "read", lambda self, path: [])
    with pytest.raises(DataError, match=r"x: no example in it; expected one at least"):
        list(
            run.train(
                kind,
                registry.load_recipe(kind),
                tmp_path / "x",
                tmp_path / "x",
                tmp_path / "run",
                **PLAIN,
            )
        )


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
    reports, _, _ = trained(tmp_path)
    last = reports[-1].step
    assert {("train/loss", last), ("valid/f1", last), ("train/per_second", last)} <= set(told)
    assert told[-1] == "closed"


def test_small_uneven_batches_make_the_updates_of_a_large_one(tmp_path, bilm):
    """Also the penalty on the mix: it counts once an update, not once a batch."""
    weights = []
    calm = ["model.dropout=0", "elmo.dropout=0", "elmo.penalty=5", "train.precision=float64"]
    for number, more in enumerate(
        (["batch_size=20"], ["batch_size=7", "train.grad_accum_steps=3"])
    ):
        _, _, out = trained(tmp_path, "pos", *calm, *more, embedder=f"elmo:{bilm}", out=str(number))
        (last,) = (out / "checkpoints").iterdir()
        weights.append(load_file(last / "model.safetensors"))
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-6, atol=1e-9)


def test_early_stopping_keeps_the_best(tmp_path):
    reports, data, out = trained(
        tmp_path, "ner", "train.epochs=40", "train.patience=2", "train.lr=0.01"
    )
    assert "no better f1 in 2 evaluations" in reports[-1].stop_reason
    best = max(report.scores["f1"] for report in reports if report.scores)
    assert run.evaluate(out, data, device="cpu")["f1"] == best


def test_raw_text_is_tokenised(tmp_path):
    _, _, out = trained(tmp_path)
    (found,) = run.predict(out, ["Bo left (Rome)."], device="cpu")
    assert found.data["tokens"] == ["Bo", "left", "(", "Rome", ")", "."]


def test_predictions_are_shown_for_people(tmp_path):
    tagged = registry.find_task("ner")(registry.load_recipe(registry.find_task("ner"))).example(
        "Ann Lee left Rome", tokenized=True
    )
    shown = registry.find_task("ner").show(
        None, tagged, ["B-person", "I-person", "O", "B-location"]
    )
    assert shown == "[Ann Lee PERSON] left [Rome LOCATION]"
    assert (
        registry.find_task("pos").show(None, tagged, ["A", "B", "C", "D"])
        == "Ann/A Lee/B left/C Rome/D"
    )


def test_an_unknown_task_is_named():
    with pytest.raises(ConfigError, match=r"^no task 'nerd'; did you mean 'ner'\?$"):
        registry.find_task("nerd")


def test_other_data_or_another_embedder_is_not_resumed(tmp_path, vectors):
    trained(tmp_path)
    with pytest.raises(ConfigError, match=r"another recipe .*embedder"):
        trained(tmp_path, embedder=f"glove:{vectors}", resume=True)
    toy_tasks.write("ner", tmp_path / "ner.txt", 10)
    kind = registry.find_task("ner")
    recipe = registry.load_recipe(kind, None, [*toy_tasks.small("ner"), "train.epochs=2"])
    data = tmp_path / "ner.txt"
    with pytest.raises(ConfigError, match=r"another recipe \(data\.sha256\.dev"):
        list(run.train(kind, recipe, data, data, tmp_path / "run", **PLAIN, resume=True))


def test_a_run_goes_on_with_vectors_that_were_moved_but_not_with_data_read_otherwise(
    tmp_path, vectors
):
    trained(tmp_path, embedder=f"glove:{vectors}")
    moved = vectors.rename(tmp_path / "moved.txt")
    assert trained(tmp_path, embedder=f"glove:{moved}", resume=True)[0] == []
    with pytest.raises(ConfigError, match=r"another recipe \(data\.encoding 'utf-8' -> 'latin-1'"):
        trained(tmp_path, "ner", "data.encoding=latin-1", embedder=f"glove:{moved}", resume=True)


def test_examples_are_known_by_the_bytes_of_their_file_not_by_their_class(tmp_path, monkeypatch):
    trained(tmp_path)

    def unknown(self):
        raise AssertionError("an example was written out to be known again")

    monkeypatch.setattr(Tagged, "__repr__", unknown)
    assert trained(tmp_path, resume=True)[0] == []


def test_what_came_through_a_pipe_is_known_by_what_was_read(tmp_path):
    def piped(text):
        place = tmp_path / "pipe"
        os.mkfifo(place)
        writer = threading.Thread(target=place.write_text, args=(text,))
        writer.start()
        kind = registry.find_task("ner")
        recipe = registry.load_recipe(kind, None, [*toy_tasks.small("ner"), "train.epochs=1"])
        resume = (tmp_path / "run").exists()
        reports = run.train(
            kind, recipe, place, tmp_path / "dev", tmp_path / "run", **PLAIN, resume=resume
        )
        try:
            return list(reports)
        finally:
            writer.join()
            place.unlink()

    text = toy_tasks.write("ner", tmp_path / "dev").read_text()
    assert piped(text)
    assert piped(text) == []
    with pytest.raises(ConfigError, match=r"another recipe \(data\.sha256\.train"):
        piped(text.replace("Ann", "Eve"))


def test_a_folder_without_a_trained_task_is_named(tmp_path, bilm):
    with pytest.raises(ConfigError, match="nowhere: no trained task there"):
        checkpoint.load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="not of a trained task, but of a language model"):
        checkpoint.load(bilm)


def test_vectors_of_a_file_may_be_learned_on(tmp_path, vectors):
    _, data, out = trained(tmp_path, "ner", "words.freeze=false", embedder=f"glove:{vectors}")
    solved = checkpoint.load(out, device="cpu")
    before = torch.from_numpy(solved.sources.vectors.matrix)
    after = solved.learner.embedding.words.state_dict()
    (learned,) = (tensor for tensor in after.values() if tensor.shape == before.shape)
    assert not torch.equal(learned, before)
    assert run.evaluate(out, data, device="cpu") == solved.scores


def test_a_batch_too_large_for_the_gpu_is_one_sentence(tmp_path, monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    monkeypatch.setattr(run, "fit", full)
    message = r"batches of 8 examples do not fit .*\(CUDA out of memory\); lower batch_size"
    with pytest.raises(ConfigError, match=message):
        trained(tmp_path)


def test_a_disk_that_fills_while_the_weights_are_written_is_one_sentence(tmp_path, monkeypatch):
    def full(*_, **__):
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(ElmoreError, match=r"best: could not be written \(No space left on device"):
        trained(tmp_path)
    assert not (tmp_path / "run" / "best").exists()


def test_damage_is_one_sentence(tmp_path):
    _, _, out = trained(tmp_path)
    path, described = out / "best" / "model.safetensors", out / "best" / "config.json"
    tensors, text = load_file(path), described.read_text()
    for wrong, message in (
        (tensors | {"model.crf.transitions": torch.zeros(2, 2)}, "has shape"),
        (tensors | {"more": torch.zeros(1)}, "more is in one of"),
        (tensors | {"embedding.words.unknown": torch.full((50,), torch.nan)}, "not finite"),
    ):
        save_file(wrong, path)
        with pytest.raises(WeightsError, match=message):
            checkpoint.load(out)
    path.write_bytes(b"nothing")
    with pytest.raises(WeightsError, match="not a readable safetensors file"):
        checkpoint.load(out)
    for key, value, message in (
        ("format", 99, "format 99 is newer"),
        ("task", "nothing", "no task 'nothing'"),
        ("labels", 3, "labels: expected list"),
        ("labels", ["O", "person"], "config.json: expected labels such as O, B-person"),
    ):
        described.write_text(json.dumps(json.loads(text) | {key: value}))
        with pytest.raises(ConfigError, match=message):
            checkpoint.load(out)


def test_word_vectors_go_with_the_folder(tmp_path, vectors):
    _, data, out = trained(tmp_path, embedder=f"glove:{vectors}")
    expected = run.evaluate(out, data, device="cpu")
    vectors.unlink()
    for place in (out, shutil.copytree(out / "best", tmp_path / "elsewhere" / "moved")):
        assert run.evaluate(place, data, device="cpu") == expected
    assert str(tmp_path) not in (out / "best" / "config.json").read_text()


def test_a_bilm_goes_along_or_is_named_anew(tmp_path, bilm, vectors):
    _, data, out = trained(tmp_path, out="a/run", embedder=f"glove:{vectors}+elmo:{bilm}")
    expected = run.evaluate(out, data, device="cpu")
    alone = Path(shutil.move(out, tmp_path / "b"))
    assert run.evaluate(alone, data, device="cpu") == expected
    together = tmp_path / "far" / "away"
    shutil.copytree(alone, together / "a" / "run")
    shutil.move(bilm, together / "bilm")
    assert run.evaluate(together / "a" / "run", data, device="cpu") == expected
    with pytest.raises(
        ConfigError, match=r"cannot be opened \(.*bilm.*with --embedder elmo:MODEL$"
    ):
        run.evaluate(alone, data, device="cpu")
    named = f"elmo:{together / 'bilm'}"
    assert run.evaluate(alone, data, device="cpu", embedder=named) == expected
    (found,) = run.predict(alone, ["Bo left"], device="cpu", embedder=named)
    (before,) = run.predict(together / "a" / "run", ["Bo left"], device="cpu")
    assert found == before


def test_the_bilm_that_matches_is_taken_from_either_place(tmp_path, bilm):
    _, data, out = trained(tmp_path, out="a/run", embedder=f"elmo:{bilm}")
    expected = run.evaluate(out, data, device="cpu")
    copy = shutil.copytree(out, tmp_path / "far" / "a" / "run")
    nearby = toy_tasks.bilm(tmp_path / "far" / "bilm", seed=1)
    assert run.evaluate(copy, data, device="cpu") == expected
    shutil.rmtree(nearby)
    nearby.mkdir()
    assert run.evaluate(copy, data, device="cpu") == expected
    nearby.rmdir()
    bilm.rename(nearby)
    bilm.mkdir()
    assert run.evaluate(copy, data, device="cpu") == expected
    bilm.rmdir()
    toy_tasks.bilm(bilm, seed=1)
    assert run.evaluate(copy, data, device="cpu") == expected
    assert checkpoint.load(copy, device="cpu").sources.specification.elmo == str(nearby)
    shutil.rmtree(nearby)
    with pytest.raises(ConfigError, match=r"bilm is not what it was .*name it with --embedder"):
        run.evaluate(copy, data, device="cpu")


def test_another_embedder_is_not_taken_for_that_of_the_training(tmp_path, bilm):
    _, data, out = trained(tmp_path, embedder=f"elmo:{bilm}")
    other = toy_tasks.bilm(tmp_path / "other", seed=1)
    for named, message in (
        (f"elmo:{other}", r"other is not what it was when this run was trained"),
        ("glove:x.txt", r"trained with elmo:.*bilm, found --embedder glove:x\.txt; expected the"),
        ("none", r"found --embedder none; expected the place of the same"),
    ):
        with pytest.raises(ConfigError, match=message):
            run.evaluate(out, data, device="cpu", embedder=named)


def test_saving_again_links_to_the_word_vectors_that_are_there(tmp_path, vectors):
    _, _, out = trained(tmp_path, embedder=f"glove:{vectors}")
    solved = checkpoint.load(out, device="cpu")
    stored = out / "best" / "vectors.safetensors"
    before = stored.stat()
    checkpoint.save(solved, out / "best")
    checkpoint.save(solved, tmp_path / "another")
    linked = tmp_path / "another" / "vectors.safetensors"
    assert linked.stat().st_ino == stored.stat().st_ino == before.st_ino
    stored.write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="not readable word vectors"):
        checkpoint.load(out, device="cpu")


def test_more_processes_than_examples_to_a_batch_are_refused():
    from elmore.tasks.training import Training

    kind = registry.find_task("ner")
    recipe = registry.load_recipe(kind, None, ["batch_size=2"])
    from elmore.tasks import trained_task
    from elmore.tasks.embedding import spec

    solved = trained_task.build(
        kind(recipe), recipe, ["O"], [], spec.opened(spec.parse("none"), device="cpu")
    )
    some = [kind(recipe).example("a b", tokenized=True)] * 4
    with pytest.raises(ConfigError, match="batches of 2 examples cannot be shared by 3 processes"):
        Training(solved, some, None, some, None, SINGLE_PROCESS._replace(world_size=3))


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    kind = registry.find_task("ner")
    with pytest.raises(DataError, match=r"empty\.txt"):
        list(
            run.train(
                kind,
                registry.load_recipe(kind),
                tmp_path / "empty.txt",
                tmp_path / "empty.txt",
                tmp_path / "run",
                **PLAIN,
            )
        )
    assert not (tmp_path / "run").exists()
