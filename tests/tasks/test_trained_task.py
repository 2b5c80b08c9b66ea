import json

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from elmore.errors import DataError
from elmore.tasks import registry, trained_task
from elmore.tasks.coref.document import sort_clusters
from elmore.tasks.coref.model import CorefHead
from elmore.tasks.embedding.spec import open_embedders, parse_spec
from elmore.tasks.registry import TASKS
from elmore.tasks.task import Task
from tests.support import toy_tasks

UNITS = {
    "ner": "tokens",
    "pos": "tokens",
    "squad": "questions",
    "srl": "decisions",
    "coref": "spans",
}


def without_embedders():
    return open_embedders(parse_spec("none"), device="cpu")


@pytest.mark.parametrize("name", TASKS)
def test_losses_counts_and_gradients_of_batches_add_up_and_say_what_is_counted(tmp_path, name):
    """Every task gives sums, so the engine may accumulate batches of any size."""
    kind = registry.find_task(name)
    job = kind(registry.load_recipe(kind, None, toy_tasks.small(name)))
    read = job.read_examples(toy_tasks.write(name, tmp_path / "data.txt"))
    result = job.training_examples(read)
    words = sorted({word for e in result for sentence in job.sentences(e) for word in sentence})
    torch.manual_seed(0)
    trained = trained_task.build(job, job.collect_labels(result), words, without_embedders())
    trained.network.to(torch.float64).eval()

    def summed(*parts):
        trained.network.zero_grad()
        batches = [
            trained.make_batch(part, map(job.sentences, part), None, with_gold=True)
            for part in parts
        ]
        outcomes = [trained.network(batch) for batch in batches]
        loss, count = (sum(outcome[i] for outcome in outcomes) for i in (0, 1))
        loss.backward()
        gradients = {
            name: weight.grad.clone()
            for name, weight in trained.network.named_parameters()
            if weight.grad is not None
        }
        return loss.detach(), count, gradients

    unit = trained.network.model.unit
    assert unit == UNITS.get(name, "examples")
    if unit in ("tokens", "questions", "examples"):
        tokens = sum(len(sentence) for example in result for sentence in job.sentences(example))
        assert summed(result)[1].item() == (tokens if unit == "tokens" else len(result))
    cut = max(1, len(result) // 4)
    # some tasks compute the loss itself in float32
    assert_close(summed(result[:cut], result[cut:]), summed(result), rtol=1e-4, atol=1e-7)


def test_a_prediction_that_fails_leaves_the_network_in_training(monkeypatch):
    kind = registry.find_task("ner")
    task = kind(registry.load_recipe(kind, None, toy_tasks.small("ner")))
    trained = trained_task.build(task, ["O"], ["Ann"], without_embedders())
    trained.network.train()

    def full(batch):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(trained.network, "predict", full)
    with pytest.raises(torch.OutOfMemoryError):
        trained.predict_examples([task.example_from_text("Ann left", tokenized=True)])
    assert trained.network.training


@pytest.mark.parametrize("name", TASKS)
def test_predictions_do_not_depend_on_other_texts(shared_run, name):
    run = shared_run(name, "both")
    read = run.task.task.read_examples(run.data)
    texts = [*(toy_tasks.typed(name, example) for example in read), *toy_tasks.unusual_texts(name)]
    together = [p.prediction for p in run.task.predict(texts, tokenized=True)]
    for text, expected in zip(texts, together, strict=True):
        (alone,) = run.task.predict([text], tokenized=True)
        assert alone.prediction == expected
    assert "" not in texts or together[texts.index("")] == []


def test_scoring_a_text_once_keeps_no_layers_and_needs_none_kept(
    tmp_path, shared_run, cache, monkeypatch
):
    trained = shared_run("ner", "elmo").task
    other = toy_tasks.write("ner", tmp_path / "other.txt", 13)
    expected = trained.evaluate(other, cache_layers=True)
    (kept,) = cache.rglob("*.npy")
    assert trained.evaluate(other) == expected
    kept.unlink()
    monkeypatch.setattr(trained_task, "_CHUNK_EXAMPLES", 4)
    assert trained.evaluate(other) == expected
    monkeypatch.setattr(trained_task, "_CHUNK_TOKENS", 1)
    assert trained.evaluate(other) == expected
    assert not list(cache.rglob("*.npy"))


def test_one_text_is_not_taken_for_texts_of_one_letter(shared_run):
    with pytest.raises(DataError, match=r"pass \['Ann left Rome.'\] for one"):
        shared_run().task.predict("Ann left Rome.")


def test_predictions_are_written_in_columns_that_conlleval_reads(tmp_path, shared_run):
    run, path = shared_run(), tmp_path / "predicted.txt"
    scores = run.task.evaluate(run.data, predictions=path)
    kind = registry.find_task("ner")
    task, gold_task = (
        kind(registry.load_recipe(kind, None, settings)) for settings in ([], ["data.column=1"])
    )
    gold = gold_task.read_examples(path)
    assert gold == task.read_examples(run.data)
    assert task.score(gold, [example.tags for example in task.read_examples(path)]) == scores
    assert path.read_text().startswith("Ann B-person ")


def test_predicted_clusters_are_written_as_the_name_says_and_read_again(
    tmp_path, shared_run, monkeypatch
):
    run = shared_run("coref", "both")
    clusters = [[[0, 0, 2], [1, 0, 1]]]
    monkeypatch.setattr(
        CorefHead, "predict", lambda self, embedded, features: [clusters] * len(features["rows"])
    )
    coref = run.task.task
    gold = coref.read_examples(run.data)
    for name, start in (("found.conllu", "# newdoc id = story0"), ("found", "#begin document (")):
        scores = run.task.evaluate(run.data, predictions=tmp_path / name)
        assert (tmp_path / name).read_text().startswith(start)
        result = coref.read_examples(tmp_path / name)
        assert [document.sentences for document in result] == [d.sentences for d in gold]
        assert [document.clusters for document in result] == [sort_clusters(clusters)] * 2
        assert coref.score(gold, [clusters] * 2) == scores


def test_predictions_of_a_task_without_a_format_are_lines_of_json(shared_run):
    run = shared_run("pos")
    read = run.task.task.read_examples(run.data)
    result = run.task.predict_examples(read)
    lines = list(Task.prediction_lines(run.task.task, read, result))
    assert [json.loads(line)["tags"] for line in lines] == result
    assert len(lines) == 20


def test_the_path_for_predictions_is_checked_first(tmp_path, copied_run, shared_run):
    data, _ = copied_run()
    before = data.read_bytes()
    for position, message in (
        (data, "this is the file of examples"),
        (tmp_path, "expected the name of a file"),
        (tmp_path / "none" / "x", "expected the name of a file"),
    ):
        with pytest.raises(DataError, match=message):
            shared_run().task.evaluate(data, predictions=position)
    assert data.read_bytes() == before


def test_raw_text_is_tokenized(shared_run):
    (result,) = shared_run().task.predict(["Bo left (Rome)."])
    assert result.data["tokens"] == ["Bo", "left", "(", "Rome", ")", "."]


@pytest.mark.parametrize(
    ("name", "text", "has_offsets", "num_labels"),
    [
        ("ner", "Bo left (Rome).", True, 6),
        ("pos", "Bo left.", True, 3),
        ("sst", "fine .", True, None),
        ("snli", "a cat .\ta dog .", False, None),
    ],
)
def test_a_prediction_has_offsets_and_confidences(shared_run, name, text, has_offsets, num_labels):
    (result,) = shared_run(name).task.predict([text])
    values = result.confidence if num_labels else [result.confidence]
    assert len(values) == (num_labels or 1)
    assert all(0 < value <= 1 + 1e-5 for value in values)
    if has_offsets:
        tokens = shared_run(name).task.task.sentences(result.example)[0]
        assert [text[start:end] for start, end in result.offsets] == tokens
    else:
        assert result.offsets is None


def test_a_task_without_labels_has_no_confidence(shared_run):
    (result,) = shared_run("squad").task.predict(["Who left?\tAnn left Rome."])
    assert result.confidence is None


def test_a_text_that_is_no_example_is_named_by_its_number(shared_run):
    with pytest.raises(DataError, match="text 2: expected a premise and a hypothesis"):
        list(shared_run("snli", "both").task.predict(["a\tb", "c"]))


def test_predictions_are_formatted_for_reading():
    ner, pos = (registry.find_task(name) for name in ("ner", "pos"))
    tagged = ner(registry.load_recipe(ner)).example_from_text("Ann Lee left Rome", tokenized=True)
    shown = ner.format_text(None, tagged, ["B-person", "I-person", "O", "B-location"])
    assert shown == "[Ann Lee PERSON] left [Rome LOCATION]"
    assert pos.format_text(None, tagged, ["A", "B", "C", "D"]) == "Ann/A Lee/B left/C Rome/D"


@pytest.mark.parametrize("name", TASKS)
def test_counts_of_examples_add_up_to_the_score(shared_run, tmp_path, name):
    """Also of resampled examples, which is what the counts are for."""
    trained, data = shared_run(name).task, shared_run(name).data
    scores = trained.evaluate(data, counts=tmp_path / "counts.json")
    written = json.loads((tmp_path / "counts.json").read_text())
    assert (written["task"], written["metric"]) == (name, trained.task.metric)
    counts = np.array(written["counts"])
    total = counts.sum(0, keepdims=True)
    assert trained.task.score_counts(total) == pytest.approx([scores[trained.task.metric]])
    examples = trained.task.read_examples(data)
    predictions = trained.predict_examples(examples)
    drawn = np.random.default_rng(0).integers(len(examples), size=(3, len(examples)))
    expected = [
        trained.task.score([examples[i] for i in rows], [predictions[i] for i in rows])
        for rows in drawn
    ]
    assert trained.task.score_counts(counts[drawn].sum(1)) == pytest.approx(
        [one[trained.task.metric] for one in expected]
    )


@pytest.mark.parametrize("name", TASKS)
def test_counts_of_nothing_are_a_score_of_zero(name):
    job = registry.find_task(name)(registry.load_recipe(registry.find_task(name)))
    width = 12 if name == "coref" else 3
    assert job.score_counts(np.zeros((2, width))).tolist() == [0, 0]


def test_counts_are_not_written_over_the_examples(shared_run, copied_run):
    data, _ = copied_run()
    with pytest.raises(DataError, match="this is the file of examples"):
        shared_run().task.evaluate(data, counts=data)


def test_a_task_without_counts_writes_none(shared_run, tmp_path, monkeypatch):
    trained, data = shared_run().task, shared_run().data
    monkeypatch.setattr(type(trained.task), "count", Task.count)
    trained.evaluate(data, counts=tmp_path / "counts.json")
    assert not (tmp_path / "counts.json").exists()
