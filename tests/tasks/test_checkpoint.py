import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from elmore.errors import ConfigError, WeightsError
from elmore.tasks import checkpoint
from elmore.tasks.checkpoint import load_task, save_task
from elmore.tasks.registry import TASKS
from tests.support import toy_tasks

# every task with word vectors and a biLM, and one task with every embedder
GRID = [*((name, "both") for name in TASKS), *(("ner", kind) for kind in ("none", "glove", "elmo"))]


def score(place, data, **options):
    return load_task(place, device="cpu", **options).evaluate(data)


@pytest.mark.parametrize(("name", "embedder"), GRID)
def test_a_saved_task_scores_and_predicts_as_it_did(shared_run, name, embedder):
    run = shared_run(name, embedder)
    loaded = load_task(run.out, device="cpu")
    assert loaded.scores == run.task.scores == loaded.evaluate(run.data)
    task = loaded.task
    texts = [toy_tasks.typed(name, example) for example in task.read_examples(run.data)]
    expected = list(run.task.predict(texts, tokenized=True))
    assert list(loaded.predict(texts, tokenized=True)) == expected
    rows = [prediction.data for prediction in expected]
    assert all(len(row["tags"]) == len(row["tokens"]) for row in rows if "tags" in row)


def test_only_what_was_trained_is_saved(shared_run):
    out = shared_run("ner", "both").out
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


def test_a_folder_without_a_trained_task_is_named(tmp_path, bilm):
    with pytest.raises(ConfigError, match="nowhere: no trained task found"):
        load_task(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="not a trained task, but a language model"):
        load_task(bilm)


def test_vectors_of_a_file_may_be_learned_on(tmp_path, vectors):
    run = toy_tasks.train(tmp_path, "ner", "words.freeze=false", embedder=f"glove:{vectors}")
    before = torch.from_numpy(run.task.embedders.vectors.matrix)
    after = run.task.network.embedding.words.state_dict()
    (learned,) = (tensor for tensor in after.values() if tensor.shape == before.shape)
    assert not torch.equal(learned, before)
    assert score(run.out, run.data) == run.task.scores


def test_damage_is_reported_in_one_sentence(copied_run):
    _, out = copied_run()
    path, described = out / "best" / "model.safetensors", out / "best" / "config.json"
    tensors, text = load_file(path), described.read_text()
    for wrong, message in (
        (tensors | {"model.crf.transitions": torch.zeros(2, 2)}, "has shape"),
        (tensors | {"more": torch.zeros(1)}, "more is not in the network of config.json"),
        (
            {name: t for name, t in tensors.items() if "crf" not in name},
            "model.crf.transitions is missing; are both files of the same run",
        ),
        (tensors | {"embedding.words.unknown": torch.full((50,), torch.nan)}, "not finite"),
    ):
        save_file(wrong, path)
        with pytest.raises(WeightsError, match=message):
            load_task(out)
    path.write_bytes(b"nothing")
    with pytest.raises(WeightsError, match="not a readable safetensors file"):
        load_task(out)
    for key, value, message in (
        ("format", 99, "format 99 is newer"),
        ("task", "nothing", "no task 'nothing'"),
        ("labels", 3, "labels: expected list"),
        ("labels", ["O", "person"], "config.json: expected labels such as O, B-person"),
    ):
        described.write_text(json.dumps(json.loads(text) | {key: value}))
        with pytest.raises(ConfigError, match=message):
            load_task(out)


def test_word_vectors_go_with_the_folder(tmp_path, shared_run):
    run = shared_run("ner", "glove")
    moved = shutil.copytree(run.out / "best", tmp_path / "elsewhere" / "moved")
    assert score(moved, run.data) == run.task.scores
    assert load_task(moved).embedders.spec.glove == str(moved / "vectors.safetensors")
    assert str(run.out.parent) not in (moved / "config.json").read_text()


def test_a_bilm_is_saved_with_the_task_or_named_when_loading(tmp_path, bilm, vectors):
    run = toy_tasks.train(tmp_path, out="a/run", embedder=f"glove:{vectors}+elmo:{bilm}")
    expected = run.task.scores
    alone = Path(shutil.move(run.out, tmp_path / "b"))
    assert score(alone, run.data) == expected
    together = tmp_path / "far" / "away"
    shutil.copytree(alone, together / "a" / "run")
    shutil.move(bilm, together / "bilm")
    assert score(together / "a" / "run", run.data) == expected
    with pytest.raises(
        ConfigError, match=r"cannot be opened \(.*bilm.*with --embedder elmo:MODEL$"
    ):
        load_task(alone, device="cpu")
    named = load_task(alone, device="cpu", embedder=f"elmo:{together / 'bilm'}")
    assert named.evaluate(run.data) == expected
    (result,) = named.predict(["Bo left"])
    (before,) = load_task(together / "a" / "run", device="cpu").predict(["Bo left"])
    assert result == before


def test_the_bilm_that_matches_is_taken_from_either_place(tmp_path, bilm):
    run = toy_tasks.train(tmp_path, out="a/run", embedder=f"elmo:{bilm}")
    copy = shutil.copytree(run.out, tmp_path / "far" / "a" / "run")
    nearby = toy_tasks.bilm(tmp_path / "far" / "bilm", seed=1)
    load_task(copy, device="cpu")
    shutil.rmtree(nearby)
    nearby.mkdir()
    load_task(copy, device="cpu")
    nearby.rmdir()
    bilm.rename(nearby)
    bilm.mkdir()
    load_task(copy, device="cpu")
    bilm.rmdir()
    toy_tasks.bilm(bilm, seed=1)
    loaded = load_task(copy, device="cpu")
    assert loaded.embedders.spec.elmo == str(nearby)
    assert loaded.evaluate(run.data) == run.task.scores
    shutil.rmtree(nearby)
    with pytest.raises(ConfigError, match=r"bilm is not the one .*its new place with --embedder"):
        load_task(copy, device="cpu")


def test_another_embedder_is_not_taken_for_that_of_the_training(tmp_path, shared_run):
    run = shared_run("ner", "elmo")
    other = toy_tasks.bilm(tmp_path / "other", seed=1)
    for named, message in (
        (f"elmo:{other}", r"other is not the one this task was trained with"),
        ("glove:x.txt", r"trained with elmo:.*bilm, found --embedder glove:x\.txt; expected the"),
        ("none", r"found --embedder none; expected the place of the same"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_task(run.out, device="cpu", embedder=named)


def test_saving_again_links_to_the_word_vectors_that_are_there(tmp_path, copied_run):
    _, out = copied_run("ner", "glove")
    loaded = load_task(out, device="cpu")
    stored = out / "best" / "vectors.safetensors"
    before = stored.stat()
    save_task(loaded, out / "best")
    save_task(loaded, tmp_path / "another")
    linked = tmp_path / "another" / "vectors.safetensors"
    assert linked.stat().st_ino == stored.stat().st_ino == before.st_ino
    stored.write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="not readable word vectors"):
        load_task(out, device="cpu")
