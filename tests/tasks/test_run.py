import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from elmore.errors import ConfigError, DataError, WeightsError
from elmore.tasks import TASKS, run, storage, task
from elmore.train.distributed import ALONE
from elmore.weights import folder
from tests.tasks import examples


def trained(tmp_path, name="ner", *more, embedder="none", out="run", **options):
    kind = task.find(name)
    data = examples.write(name, tmp_path / f"{name}.txt")
    recipe = task.recipe(kind, None, [*examples.small(name), "train.epochs=2", *more])
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
    best = max(report.scores[task.find(name).metric] for report in reports if report.scores)
    scores = run.evaluate(out, data, device="cpu")
    assert scores[task.find(name).metric] == best
    assert storage.load(out).scores == scores
    solver = storage.load(out / "best", device="cpu")
    read = solver.task.read(data)
    expected = solver.predict(read, solver.reader.cached(solver.sentences(read)))
    texts = [examples.typed(name, example) for example in read]
    found = list(run.predict(out, texts, tokenize=str.split, device="cpu"))
    assert [prediction.found for prediction in found] == expected
    assert all(len(p.data["tags"]) == len(p.data["tokens"]) for p in found if "tags" in p.data)


def test_only_what_was_trained_is_saved(tmp_path, vectors, bilm):
    _, _, out = trained(tmp_path, embedder=f"glove:{vectors}+elmo:{bilm}")
    assert {path.name for path in (out / "best").iterdir()} == storage.FILES
    names = set(load_file(out / "best" / "model.safetensors"))
    assert {name for name in names if name.startswith("embedding.")} == {
        "embedding.words.unknown",
        "embedding.mixes.input.mix.weights",
        "embedding.mixes.input.mix.gamma",
        "embedding.characters.embedding.weight",
        "embedding.characters.convolutions.0.weight",
        "embedding.characters.convolutions.0.bias",
    }
    checkpoint = next((out / "checkpoints").iterdir())
    assert set(load_file(checkpoint / "model.safetensors")) == names


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
    assert run.evaluate(out, data, device="cpu") == storage.load(out).scores


@pytest.mark.parametrize("name", TASKS)
def test_what_is_predicted_does_not_depend_on_the_company(tmp_path, bilm, name):
    _, data, out = trained(tmp_path, name, embedder=f"elmo:{bilm}")
    read = storage.load(out).task.read(data)
    texts = [*(examples.typed(name, example) for example in read), *examples.odd(name)]
    together = [p.found for p in run.predict(out, texts, tokenize=str.split, device="cpu")]
    for text, expected in zip(texts, together, strict=True):
        (alone,) = run.predict(out, [text], tokenize=str.split, device="cpu")
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


def test_half_batches_make_the_same_updates(tmp_path, bilm):
    """Also the penalty on the mix: it counts once an update, not once a batch."""
    weights = []
    for number, more in enumerate((["batch_size=20"], ["batch_size=10", "train.accumulate=2"])):
        calm = ["model.dropout=0", "elmo.dropout=0", "elmo.penalty=5", "train.precision=float64"]
        # sentences of one length, so that both halves count the same and weigh the same
        kind = task.find("pos")
        data = tmp_path / "even.txt"
        row = "\t".join(["{}", "{}", "_", "_", "{}", *"_____"])
        words = [[f"w{i}", f"v{i % 3}"] for i in range(20)]
        data.write_text(
            "\n\n".join(f"{row.format(1, a, 'A')}\n{row.format(2, b, b)}" for a, b in words) + "\n"
        )
        recipe = task.recipe(kind, None, [*examples.small("ner"), *calm, *more, "train.epochs=3"])
        out = tmp_path / str(number)
        list(run.train(kind, recipe, data, data, out, embedder=f"elmo:{bilm}", device="cpu"))
        (checkpoint,) = (out / "checkpoints").iterdir()
        weights.append(load_file(checkpoint / "model.safetensors"))
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-6, atol=1e-9)


def test_early_stopping_keeps_the_best(tmp_path):
    reports, data, out = trained(
        tmp_path, "ner", "train.epochs=40", "train.patience=2", "train.rate=0.01"
    )
    assert "no better f1 in 2 evaluations" in reports[-1].stopped
    best = max(report.scores["f1"] for report in reports if report.scores)
    assert run.evaluate(out, data, device="cpu")["f1"] == best


def test_raw_text_is_tokenised(tmp_path):
    _, _, out = trained(tmp_path)
    (found,) = run.predict(out, ["Bo left (Rome)."], device="cpu")
    assert found.data["tokens"] == ["Bo", "left", "(", "Rome", ")", "."]


def test_predictions_are_shown_for_people(tmp_path):
    tagged = task.find("ner")(task.recipe(task.find("ner"))).example("Ann Lee left Rome", str.split)
    shown = task.find("ner").show(None, tagged, ["B-person", "I-person", "O", "B-location"])
    assert shown == "[Ann Lee PERSON] left [Rome LOCATION]"
    assert task.find("pos").show(None, tagged, ["A", "B", "C", "D"]) == "Ann/A Lee/B left/C Rome/D"


def test_an_unknown_task_is_named():
    with pytest.raises(ConfigError, match=r"^no task 'nerd'; did you mean 'ner'\?$"):
        task.find("nerd")


def test_other_data_or_another_embedder_is_not_resumed(tmp_path, vectors):
    trained(tmp_path)
    with pytest.raises(ConfigError, match=r"another recipe .*embedder"):
        trained(tmp_path, embedder=f"glove:{vectors}", resume=True)
    examples.write("ner", tmp_path / "ner.txt", 10)
    kind = task.find("ner")
    recipe = task.recipe(kind, None, [*examples.small("ner"), "train.epochs=2"])
    data = tmp_path / "ner.txt"
    with pytest.raises(ConfigError, match=r"another recipe \(data\.dev"):
        list(run.train(kind, recipe, data, data, tmp_path / "run", device="cpu", resume=True))


def test_a_folder_without_a_trained_task_is_named(tmp_path, bilm):
    with pytest.raises(ConfigError, match="nowhere: no trained task there"):
        storage.load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="not of a trained task, but of a language model"):
        storage.load(bilm)


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
            storage.load(out)
    path.write_bytes(b"nothing")
    with pytest.raises(WeightsError, match="not a readable safetensors file"):
        storage.load(out)
    for key, value, message in (
        ("format", 99, "format is 99"),
        ("task", "nothing", "no task 'nothing'"),
        ("labels", 3, "labels: expected list"),
    ):
        described.write_text(json.dumps(json.loads(text) | {key: value}))
        with pytest.raises(ConfigError, match=message):
            storage.load(out)


def test_a_run_goes_anywhere_but_its_embedder_must_be_there(tmp_path, vectors):
    _, data, out = trained(tmp_path, embedder=f"glove:{vectors}")
    moved = shutil.move(out, tmp_path / "moved")
    assert run.evaluate(moved, data, device="cpu")
    vectors.unlink()
    with pytest.raises(ConfigError, match="what it was trained with cannot be opened"):
        run.evaluate(moved, data, device="cpu")


def test_more_processes_than_examples_to_a_batch_are_refused():
    from elmore.tasks.training import Training

    kind = task.find("ner")
    recipe = task.recipe(kind, None, ["batch_size=2"])
    from elmore.tasks import solver, sources

    solved = solver.build(
        kind(recipe), recipe, ["O"], [], sources.opened(sources.parse("none"), device="cpu")
    )
    some = [kind(recipe).example("a b", str.split)] * 4
    with pytest.raises(ConfigError, match="batches of 2 examples cannot be shared by 3 processes"):
        Training(solved, some, None, some, None, ALONE._replace(size=3))


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    kind = task.find("ner")
    with pytest.raises(DataError, match=r"empty\.txt"):
        list(
            run.train(
                kind,
                task.recipe(kind),
                tmp_path / "empty.txt",
                tmp_path / "empty.txt",
                tmp_path / "run",
                device="cpu",
            )
        )
    assert not (tmp_path / "run").exists()
