"""Pretraining from the inside: what a run leaves behind, and what it learns."""

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

import elmore
from elmore import config, lock
from elmore.errors import ConfigError, DataError
from elmore.lm import evaluate as evaluation
from elmore.lm.config import read_finetune_recipe, read_pretrain_recipe
from elmore.lm.language_model import LanguageModel
from elmore.lm.pretrain import build_model, pretrain
from elmore.model.softmax import AdaptiveSoftmax, Softmax
from elmore.train import optimizers, runs
from elmore.train.fit import Report
from elmore.train.runs import Run
from elmore.weights import pretrained
from tests.support import toy_corpus


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    """A run to its end, and its reports."""
    path = tmp_path_factory.mktemp("runs") / "run"
    settings = toy_corpus.recipe(
        "model.dropout=0", "train.steps=60", "train.lr=0.05", "train.evaluate_every=20",
        "card.language=Toy",
    )  # fmt: skip
    return path, list(pretrain(settings, corpus.path, path, device="cpu")), settings


def test_it_learns(run, corpus):
    _, reports, _ = run
    scores = [report.scores["perplexity"] for report in reports if report.scores]
    assert len(scores) == 3
    assert scores[0] < len(corpus.vocabulary)
    assert scores[-1] < 0.6 * scores[0]


def test_the_language_of_the_corpus_reaches_the_card(tmp_path):
    text = toy_corpus.prepare_corpus(tmp_path, "shards", toy_corpus.sentences(60), language="de")
    list(pretrain(toy_corpus.recipe("train.steps=1"), text.path, tmp_path / "run", device="cpu"))
    assert pretrained.load(tmp_path / "run").card.language == "de"


def test_a_run_folder_is_a_model(run, corpus):
    place, reports, _ = run
    elmo = elmore.load(place)
    assert elmo.embed(["two ships come ."])[0].vectors.shape == (4, 12)
    best = min(report.scores["perplexity"] for report in reports if report.scores)
    result = evaluation.evaluate(place, corpus.path, device="cpu")
    assert result.perplexity == pytest.approx(best, rel=1e-6)
    assert all(path.parent == place / "best" for path in pretrained.model_files(place))


def test_a_run_records_all_that_is_needed_to_repeat_it(run, corpus):
    place, _, settings = run
    recipe = config.read_json(place / "recipe.json")
    assert recipe.pop("corpus") == corpus.index["sha256"]
    assert recipe.pop("init") == []
    assert recipe.pop("format") == runs.FORMAT
    assert config.build(type(settings), recipe, "recipe.json") == settings
    bundle = pretrained.load(place)
    training = bundle.card.training
    assert bundle.card.language == "Toy"
    assert config.build(type(settings), training["recipe"], "card") == settings
    assert "from" not in training
    assert training["corpus"]["sha256"] == corpus.index["sha256"]
    assert training["scores"]["perplexity"] > 1
    assert training["versions"]["elmore"] == elmore.__version__
    assert bundle.byte_counts == tuple(corpus.byte_counts.tolist())
    assert bundle.vocabulary == corpus.vocabulary
    assert bundle.warm_state is not None


def test_a_folder_in_which_another_process_trains_is_left_alone(corpus, tmp_path):
    with (
        lock.acquire(tmp_path / "run" / "lock"),
        pytest.raises(DataError, match=r"run: process \d+ on .* working there since"),
    ):
        list(
            pretrain(
                toy_corpus.recipe("train.steps=1"), corpus.path, tmp_path / "run", device="cpu"
            )
        )
    assert list((tmp_path / "run").iterdir()) == []


def test_each_update_has_its_line(run):
    lines = [json.loads(line) for line in (run[0] / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 61))
    assert all(line["count"] == 4 * 5 and math.isfinite(line["grad_norm"]) for line in lines)
    assert Run(run[0]).checkpoint_steps() == [56, 60]


def test_the_line_of_an_evaluated_update_has_its_scores(run):
    place, reports, _ = run
    lines = [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
    result = {
        line["step"]: {k: v for k, v in line.items() if k.startswith("valid_")} for line in lines
    }
    expected = {
        report.step: {f"valid_{name}": score for name, score in report.scores.items()}
        for report in reports
        if report.scores
    }
    assert sorted(expected) == [20, 40, 60]
    assert "valid_perplexity" in expected[20]
    assert {step: scores for step, scores in result.items() if scores} == expected


def test_a_model_is_named_like_its_run_unless_the_recipe_names_it(run, corpus, tmp_path):
    assert (run[0] / "best" / "README.md").read_text().startswith("# run\n")
    settings = toy_corpus.recipe("train.steps=1", "card.name=Polly")
    list(pretrain(settings, corpus.path, tmp_path / "run", device="cpu"))
    assert (tmp_path / "run" / "best" / "README.md").read_text().startswith("# Polly\n")


@pytest.mark.parametrize("method", ["to", "forward"])
def test_a_batch_that_does_not_fit_names_the_option_to_lower(corpus, tmp_path, monkeypatch, method):
    """Before the first update, where the model is moved and recorded, and in it."""

    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")

    monkeypatch.setattr(LanguageModel, method, full)
    with pytest.raises(ConfigError, match="4 rows of 5 tokens do not fit") as error:
        list(pretrain(toy_corpus.recipe(), corpus.path, tmp_path / "run", device="cpu"))
    assert "(CUDA out of memory); lower stream.batch_size or stream.unroll_steps, and raise" in str(
        error.value
    )
    monkeypatch.undo()
    smaller = toy_corpus.recipe(
        "stream.batch_size=2", "train.steps=1"
    )  # nothing is lost: begun anew
    assert list(pretrain(smaller, corpus.path, tmp_path / "run", device="cpu"))


def test_the_same_seed_gives_the_same_run_and_another_another(run, corpus, tmp_path):
    settings = toy_corpus.recipe("train.steps=8")
    losses = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        chosen = replace(settings, train=replace(settings.train, seed=seed))
        list(pretrain(chosen, corpus.path, tmp_path / name, device="cpu"))
        losses[name] = (tmp_path / name / "metrics.jsonl").read_text()
    assert losses["a"] == losses["b"] != losses["c"]


def test_early_stopping_keeps_the_best(corpus, tmp_path):
    """At a rate that ruins the model after a while."""
    settings = toy_corpus.recipe(
        "train.steps=400", "train.evaluate_every=4", "train.patience=3", "train.lr=0.3",
        "train.schedule=constant", "train.warmup_steps=30",
    )  # fmt: skip
    reports = list(pretrain(settings, corpus.path, tmp_path / "run", device="cpu"))
    assert reports[-1].step < 400
    assert reports[-1].stop_reason == "no better perplexity in 3 evaluations"
    scores = [report.scores["perplexity"] for report in reports if report.scores]
    assert scores[-4] == min(scores)
    result = evaluation.evaluate(tmp_path / "run", corpus.path, device="cpu")
    assert result.perplexity == pytest.approx(min(scores), rel=1e-6)


def test_a_run_without_its_optimizer_goes_on_by_a_warm_restart(run, corpus, tmp_path, caplog):
    settings = toy_corpus.recipe(
        "model.dropout=0", "train.steps=60", "train.lr=0.05", "train.evaluate_every=20",
        "train.save_every=20", "train.keep_checkpoints=3",
    )  # fmt: skip
    whole, out = tmp_path / "whole", tmp_path / "run"
    list(pretrain(settings, corpus.path, whole, device="cpu"))
    shutil.copytree(whole, out)
    for step in (40, 60):
        Run(out).remove_checkpoint(step)
    (out / "checkpoints" / "step-00000020" / "optimizer.safetensors").unlink()
    reports = list(pretrain(settings, corpus.path, out, resume=True, device="cpu"))
    assert "the learning rate warms up over 4 updates" in caplog.text
    before, after = (
        [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]
        for place in (whole, out)
    )
    assert [line["step"] for line in after] == list(range(1, 61))
    assert after[20]["loss"] == before[20]["loss"]
    assert [line["lr"] for line in after[24:]] == [line["lr"] for line in before[24:]]
    scores = [report.scores["perplexity"] for report in reports if report.scores]
    assert scores[-1] < scores[0] < after[19]["valid_perplexity"]


def test_without_validation_text_the_last_model_is_kept(tmp_path):
    corpus = toy_corpus.prepare_corpus(tmp_path, "shards", toy_corpus.sentences(60))
    settings = toy_corpus.recipe("train.steps=5", "train.evaluate_every=2")
    reports = list(pretrain(settings, corpus.path, tmp_path / "run", device="cpu"))
    assert all(report.scores == {} for report in reports)
    bundle = pretrained.load(tmp_path / "run")
    again = toy_corpus.training(corpus, settings).module
    last = Run(tmp_path / "run").load_checkpoint(
        again, optimizers.build_optimizer(again, settings.train), torch.device("cpu")
    )
    assert last is not None
    assert last.progress.step == 5
    assert_close(bundle.model.state_dict(), again.bilm.state_dict(), rtol=0, atol=0)
    card = (tmp_path / "run" / "best" / "README.md").read_text()
    assert "| on held-out text | not measured |" in card
    assert "valid_" not in (tmp_path / "run" / "metrics.jsonl").read_text()


def test_one_sentence_is_enough_to_train_on_and_too_short_for_larger_batches(tmp_path):
    corpus = toy_corpus.prepare_corpus(tmp_path, "shards", ["two ships come ."])
    small = ("stream.batch_size=1", "stream.unroll_steps=5", "train.steps=2")
    list(pretrain(toy_corpus.recipe(*small), corpus.path, tmp_path / "run", device="cpu"))
    vectors = elmore.load(tmp_path / "run").embed(["two ships come ."])[0].vectors
    assert np.isfinite(vectors).all()
    with pytest.raises(DataError, match="the text has 5 tokens, too few for 2 rows of 5 steps"):
        next(
            pretrain(
                toy_corpus.recipe("stream.batch_size=2"), corpus.path, tmp_path / "b", device="cpu"
            )
        )
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("kind", ["full", "adaptive"])
def test_every_softmax_trains_saves_and_loads(corpus, tmp_path, kind):
    settings = toy_corpus.recipe(f"softmax.kind={kind}", "train.steps=4")
    reports = list(pretrain(settings, corpus.path, tmp_path / "run", device="cpu"))
    bundle = pretrained.load(tmp_path / "run")
    assert isinstance(bundle.softmax, AdaptiveSoftmax) == (kind == "adaptive")
    result = evaluation.evaluate(tmp_path / "run", corpus.path, device="cpu")
    assert result.perplexity == pytest.approx(reports[-1].scores["perplexity"], rel=1e-6)


def test_a_model_of_words_alone_trains_too(corpus, tmp_path):
    words = len(corpus.vocabulary)
    settings = toy_corpus.recipe(
        "model.characters=none", f"model.words={{num_words={words}, dim=5}}", "train.steps=4"
    )
    list(pretrain(settings, corpus.path, tmp_path / "run", device="cpu"))
    assert elmore.load(tmp_path / "run").embed(["two ships"])[0].vectors.shape == (2, 12)


@pytest.mark.parametrize(
    ("overrides", "found"),
    [
        (["model.characters=none", "model.words={num_words=3, dim=4}"], "num_words is 3, the voc"),
        (["model.words={num_words=3, dim=4}"], "words and characters cannot be trained"),
        (["stream.batch_size=700"], "too few for 700 rows of 5 steps"),
    ],
)
def test_invalid_training_settings_leave_no_files(corpus, tmp_path, overrides, found):
    with pytest.raises((ConfigError, DataError), match=found):
        next(pretrain(toy_corpus.recipe(*overrides), corpus.path, tmp_path / "run", device="cpu"))
    assert not (tmp_path / "run").exists()


def test_init_takes_the_weights_and_the_words_both_know(run, corpus, tmp_path):
    place, _, settings = run
    other = toy_corpus.prepare_corpus(
        tmp_path, "shards", ["the river sings .", "two choirs come ."] * 20
    )
    words = other.vocabulary
    bundle = pretrained.load(place)
    result = build_model(settings, words, bundle)
    assert_close(result.bilm.state_dict(), bundle.model.state_dict(), rtol=0, atol=0)
    new = build_model(settings, words)
    for number, word in enumerate(words.words):
        if word in bundle.vocabulary:
            expected = bundle.softmax.weight[int(bundle.vocabulary.ids([word])[0])]
        else:
            assert word in ("sings", "choirs")
            expected = new.softmax.weight[number]
        assert torch.equal(result.softmax.weight[number], expected), word


def test_init_takes_an_adaptive_softmax_with_the_same_vocabulary_and_cutoffs(
    corpus, tmp_path, caplog
):
    adaptive = ["model.dropout=0", "train.steps=2", "softmax.kind=adaptive"]
    path = tmp_path / "run"
    list(pretrain(toy_corpus.recipe(*adaptive), corpus.path, path, device="cpu"))
    trained = pretrained.load(path).softmax
    for cutoffs, equal in ((trained.cutoffs, True), ((3,), False)):
        settings = toy_corpus.recipe(*adaptive, f"softmax.cutoffs={list(cutoffs)}")
        new = build_model(settings, corpus.vocabulary, pretrained.load(path)).softmax
        assert (
            "--init: the softmax is not copied but starts at random" in caplog.text
        ) is not equal
        assert f"that model has the cutoffs {trained.cutoffs}" in caplog.text or equal
        assert torch.equal(new.head.weight[:2], trained.head.weight[:2]) is equal
        ours, theirs = (softmax.tails[-1].softmax.weight[-1] for softmax in (new, trained))
        assert torch.equal(ours, theirs) is equal
    wide = f"softmax.tail_widths={[2] * len(trained.cutoffs)}"
    build_model(toy_corpus.recipe(*adaptive, wide), corpus.vocabulary, pretrained.load(path))
    assert "that model has tails of the widths [1, 1], the recipe [2, 2]" in caplog.text
    other = toy_corpus.prepare_corpus(tmp_path, "shards", ["two choirs come ."] * 20)
    new = build_model(toy_corpus.recipe(*adaptive), other.vocabulary, pretrained.load(path)).softmax
    assert not torch.equal(new.head.weight[:1], trained.head.weight[:1])


@pytest.mark.parametrize(
    ("kinds", "sentence", "words"),
    [
        (("adaptive", "adaptive"), "two choirs come .", "only with the same vocabulary"),
        (("adaptive", "full"), "two choirs come .", "only with the same vocabulary"),
        (("full", "adaptive"), "two choirs come .", "only with the same vocabulary"),
        (("adaptive", "full"), None, None),
        (("full", "adaptive"), None, None),
        (("full", "sampled"), "two choirs come .", None),
        (("adaptive", "adaptive"), None, None),
    ],
)
def test_a_softmax_that_init_cannot_copy_is_logged_with_the_reason(
    corpus, tmp_path, caplog, kinds, sentence, words
):
    old, new = (toy_corpus.recipe("train.steps=1", f"softmax.kind={kind}") for kind in kinds)
    list(pretrain(old, corpus.path, tmp_path / "run", device="cpu"))
    if sentence:
        corpus = toy_corpus.prepare_corpus(tmp_path, "shards", [sentence] * 20)
    build_model(new, corpus.vocabulary, pretrained.load(tmp_path / "run"))
    (*_, message) = [r.getMessage() for r in caplog.records if "--init" in r.getMessage()] or [""]
    assert (words in message) if words else not message


@pytest.mark.parametrize("kind", ["adaptive", "full"])
def test_a_frozen_bilm_gets_a_softmax_and_stays_as_it_is(run, corpus, tmp_path, kind):
    path, _, _ = run
    before = pretrained.load(path)
    settings = toy_corpus.recipe("freeze_bilm=true", f"softmax.kind={kind}", "train.lr=0.05")
    reports = list(pretrain(settings, corpus.path, tmp_path / "run", init=[path], device="cpu"))
    after = pretrained.load(tmp_path / "run")
    for name, weight in before.model.state_dict().items():
        assert torch.equal(after.model.state_dict()[name], weight), name
    scores = [report.scores["perplexity"] for report in reports if report.scores]
    assert scores[-1] < scores[0]
    assert type(after.softmax) is (AdaptiveSoftmax if kind == "adaptive" else Softmax)


def frozen(corpus, path: Path, *overrides: str) -> Iterator[Report]:
    settings = toy_corpus.recipe("freeze_bilm=true", *overrides)
    yield from pretrain(settings, corpus.path, path, device="cpu")


def test_a_frozen_run_is_resumed_bit_for_bit(run, corpus, tmp_path):
    """The network comes from the checkpoint then, not from the initial model."""
    settings = toy_corpus.recipe("freeze_bilm=true", "train.save_every=4", "train.steps=8")
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    list(pretrain(settings, corpus.path, whole, init=[run[0]], device="cpu"))
    shutil.copytree(whole, stopped)
    Run(stopped).remove_checkpoint(8)
    shutil.rmtree(stopped / "best")
    list(pretrain(settings, corpus.path, stopped, init=[run[0]], resume=True, device="cpu"))
    for name in ("model", "softmax"):
        result, expected = (
            load_file(folder / "best" / f"{name}.safetensors") for folder in (stopped, whole)
        )
        assert all(torch.equal(result[key], expected[key]) for key in expected)
    assert (stopped / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("overrides", "words"),
    [((), "--init"), (("distillation.teacher=any",), "leaves nothing to teach")],
)
def test_a_bilm_that_is_not_there_cannot_be_frozen(corpus, tmp_path, overrides, words):
    with pytest.raises(ConfigError, match=words):
        next(frozen(corpus, tmp_path / "run", *overrides))
    assert not (tmp_path / "run").exists()


def test_init_from_a_folder_without_its_softmax_is_refused(run, corpus, tmp_path):
    shutil.copytree(run[0], tmp_path / "copy")
    (tmp_path / "copy" / "best" / "softmax.safetensors").unlink()
    with pytest.raises(DataError, match=r"loaded without its softmax.*softmax\.safetensors beside"):
        build_model(run[2], corpus.vocabulary, pretrained.load(tmp_path / "copy"))


def test_a_resumed_run_needs_its_initial_model_only_before_the_first_checkpoint(
    corpus, tmp_path, caplog
):
    old, settings = (
        toy_corpus.recipe(
            "train.steps=2", "train.save_every=1", "softmax.kind=adaptive", f"softmax.cutoffs={at}"
        )
        for at in ([3], [4])
    )
    init, out = tmp_path / "init", tmp_path / "run"
    list(pretrain(old, corpus.path, init, device="cpu"))
    warning = "--init: the softmax is not copied"
    list(pretrain(settings, corpus.path, out, init=[init], device="cpu"))
    assert caplog.text.count(warning) == 1
    shutil.rmtree(out / "checkpoints" / "step-00000002")
    shutil.move(init, tmp_path / "elsewhere")
    list(pretrain(settings, corpus.path, out, init=[init], resume=True, device="cpu"))
    assert caplog.text.count(warning) == 1
    shutil.rmtree(out / "checkpoints")
    shutil.move(tmp_path / "elsewhere", init)
    list(pretrain(settings, corpus.path, out, init=[init], resume=True, device="cpu"))
    assert caplog.text.count(warning) == 2


def test_init_keeps_nothing_but_weights(run, corpus, tmp_path):
    place, _, settings = run
    first = next(pretrain(settings, corpus.path, tmp_path / "new", init=[place], device="cpu"))
    assert first.step == 4
    assert first.metrics["loss"] < math.log(len(corpus.vocabulary))


def test_the_initial_model_is_part_of_the_recipe(run, corpus, tmp_path):
    settings = toy_corpus.recipe("model.dropout=0", "train.steps=2")
    out = tmp_path / "new"
    list(pretrain(settings, corpus.path, out, init=[run[0]], device="cpu"))
    assert config.read_json(out / "recipe.json")["init"] == [str(run[0])]
    for init in ([], [tmp_path / "copy"]):
        shutil.copytree(run[0], tmp_path / "copy", dirs_exist_ok=True)
        with pytest.raises(ConfigError, match=r"this run has another recipe \(init \["):
            list(pretrain(settings, corpus.path, out, init=init, resume=True, device="cpu"))
    assert (
        list(pretrain(settings, corpus.path, out, init=[run[0]], resume=True, device="cpu")) == []
    )


def test_init_of_another_shape_names_what_differs(run, corpus, tmp_path):
    place, _, _ = run
    settings = toy_corpus.recipe("model.lstm.cell_dim=16")
    with pytest.raises(ConfigError, match=r"--init: .* another shape \(model.lstm"):
        next(pretrain(settings, corpus.path, tmp_path / "new", init=[place], device="cpu"))
    assert not (tmp_path / "new").exists()


def test_init_of_a_table_of_other_words_is_refused(corpus, tmp_path):
    words = len(corpus.vocabulary)
    settings = toy_corpus.recipe(
        "model.characters=none", f"model.words={{num_words={words}, dim=5}}", "train.steps=2"
    )
    list(pretrain(settings, corpus.path, tmp_path / "run", device="cpu"))
    lines = [line.replace("ships", "boats") for line in toy_corpus.sentences(400)]
    other = toy_corpus.prepare_corpus(tmp_path, "shards", lines, min_count=6)
    assert len(other.vocabulary) == words
    with pytest.raises(ConfigError, match="--init: that model has embeddings of other words"):
        build_model(settings, other.vocabulary, pretrained.load(tmp_path / "run"))


def test_a_model_in_float64_is_saved_and_used(corpus, tmp_path):
    settings = toy_corpus.recipe("train.precision=float64", "train.steps=2")
    list(pretrain(settings, corpus.path, tmp_path / "run", device="cpu"))
    file = tmp_path / "run" / "checkpoints" / "step-00000002" / "model.safetensors"
    assert {tensor.dtype for tensor in load_file(file).values()} == {torch.float64}
    vectors = elmore.load(tmp_path / "run").embed(["two ships"])[0].vectors
    assert np.isfinite(vectors).all()


def test_recipes_that_are_not_there_are_named(tmp_path):
    with pytest.raises(ConfigError, match="huge: no such recipe; name a file, or one of english"):
        read_pretrain_recipe("huge")
    with pytest.raises(ConfigError, match="no such recipe"):
        read_finetune_recipe(str(tmp_path / "none.toml"))
