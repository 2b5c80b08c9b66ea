"""Fine-tuning: new words beside the old ones, a softmax for models without, what it does."""

import json
import math
import os
import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import elmore
from elmore import config, lock
from elmore.errors import ConfigError, DataError
from elmore.lm import finetune as finetuning
from elmore.lm import perplexity
from elmore.lm.config import FinetuneConfig
from elmore.lm.finetune import PerplexityChange, extend_vocabulary, finetune
from elmore.lm.language_model import LanguageModel
from elmore.lm.pretrain import pretrain
from elmore.model.softmax import AdaptiveSoftmax
from elmore.text.vocabulary import ELMO_MARKS
from elmore.train.runs import Run
from elmore.weights import pretrained
from elmore.weights.digest import model_digest, softmax_digest
from tests.support import toy_corpus
from tests.support.fake_checkpoints import bilm_options, bilm_weights, many_langs, write_bilm

DOMAIN = [
    f"{number} {what} in the {organ} {verb} ."
    for number in ("two", "a", "many")
    for what in ("lesions", "tumours", "cysts")
    for organ in ("liver", "lung", "market")
    for verb in ("grow", "heal", "were seen")
]


@pytest.fixture(scope="module")
def domain(tmp_path_factory):
    """Another text: some of its words are known to the model of `general`."""
    return toy_corpus.prepare_corpus(
        tmp_path_factory.mktemp("domain"), "shards", DOMAIN, [*DOMAIN[::5], "many spleens grow ."]
    )


@pytest.fixture(scope="module")
def general(corpus, tmp_path_factory):
    """A model of ours that learned a little."""
    path = tmp_path_factory.mktemp("general") / "run"
    settings = toy_corpus.recipe(
        "train.steps=40", "train.lr=0.05", "model.dropout=0", "train.evaluate_every=40",
        "train.save_every=40",
    )  # fmt: skip
    list(pretrain(settings, corpus.path, path, device="cpu"))
    return path


def recipe(*overrides: str) -> FinetuneConfig:
    table = {
        "stream": {"batch_size": 4, "unroll_steps": 5, "reset_probability": 1.0},
        "softmax": {"num_samples": 40},
        "softmax_train": {"steps": 20, "lr": 0.05, "warmup_steps": 2, "evaluate_every": 10},
        "train": {"steps": 20, "lr": 0.02, "warmup_steps": 2, "evaluate_every": 10},
    }
    return config.build(FinetuneConfig, config.apply_overrides(table, overrides), "a recipe")


def ran(sources, domain, out, *overrides, **options):
    *reports, last = finetune(
        sources, domain.path, out, recipe(*overrides), device="cpu", **options
    )
    assert isinstance(last, PerplexityChange)
    return reports, last


def measured(bundle, corpus, merged=None) -> perplexity.Perplexity:
    model = LanguageModel(bundle.model, bundle.softmax).eval()
    batches, spelling = perplexity.build_encoders(
        corpus, model, bundle.alphabet, bundle.vocabulary, bundle.byte_counts
    )
    return perplexity.measure_perplexity(
        model, batches, corpus.split("valid"), spelling, merged_ids=merged
    )


def test_new_words_are_put_after_the_old_ones(general, domain):
    old = pretrained.load(general)
    new = extend_vocabulary(old, domain)
    assert new.vocabulary.words[: len(old.vocabulary)] == old.vocabulary.words
    added = new.vocabulary.words[len(old.vocabulary) :]
    expected = [word for word in domain.vocabulary.words if word not in old.vocabulary]
    assert list(added) == [word for word in expected if word not in ELMO_MARKS]
    assert {"lesions", "liver"} < set(added)
    assert extend_vocabulary(new, domain) is new


def test_old_words_keep_their_probability_and_new_words_divide_that_of_unk(general, domain):
    old = pretrained.load(general)
    new = extend_vocabulary(old, domain)
    states = torch.randn(7, 6)
    with torch.no_grad():
        before, after = (bundle.softmax.log_probs(states).exp() for bundle in (old, new))
    num_words, unknown = len(old.vocabulary), int(old.vocabulary.ids(["<UNK>"])[0])
    kept = [number for number in range(num_words) if number != unknown]
    assert_close(after[:, kept], before[:, kept], rtol=1e-5, atol=1e-8)
    together = after[:, unknown] + after[:, num_words:].sum(dim=1)
    assert_close(together, before[:, unknown], rtol=1e-5, atol=1e-8)
    # by their counts, each once more: "liver" 27 times, unknown words never
    counts = {word: int(domain.counts[i]) for i, word in enumerate(domain.types)}
    liver = int(new.vocabulary.ids(["liver"])[0])
    assert counts["liver"] == 27
    assert_close(after[:, liver], 28 * after[:, unknown], rtol=1e-4, atol=0)


def test_before_any_update_the_merged_perplexity_is_the_old_one(general, domain):
    old = pretrained.load(general)
    new = extend_vocabulary(old, domain)
    merged = finetuning._unknown_group(new.vocabulary, len(old.vocabulary))
    assert len(merged) == 1 + len(new.vocabulary) - len(old.vocabulary)
    before, after = measured(old, domain), measured(new, domain, merged)
    assert after.perplexity == pytest.approx(before.perplexity, rel=1e-5)
    assert measured(new, domain).perplexity > 1.01 * before.perplexity


def test_fine_tuning_an_elmore_model_improves_the_words_it_knew(general, domain, tmp_path):
    reports, result = ran([general], domain, tmp_path / "run")
    old = pretrained.load(general)
    assert result.before == pytest.approx(measured(old, domain).perplexity, rel=1e-6)
    assert result.after < 0.8 * result.before
    assert result.num_words == len(old.vocabulary)
    best = pretrained.load(tmp_path / "run")
    assert len(best.vocabulary) == result.num_words + result.new_words
    merged = finetuning._unknown_group(best.vocabulary, result.num_words)
    assert result.after == pytest.approx(measured(best, domain, merged).perplexity, rel=1e-6)
    assert best.byte_counts == old.byte_counts  # of the text its vocabulary was counted on
    assert best.card.training["from"]["training"] == old.card.training
    assert not (tmp_path / "run" / "softmax").exists()
    assert [report.step for report in reports] == [10, 20]


def test_a_folder_that_lacks_its_softmax_is_refused(general, domain, tmp_path):
    shutil.copytree(general, tmp_path / "copy")
    (softmax,) = (tmp_path / "copy").rglob("best/softmax.safetensors")
    softmax.unlink()
    with pytest.raises(DataError, match=r"loaded without its softmax.*softmax\.safetensors beside"):
        ran([tmp_path / "copy"], domain, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture(params=["a model written here", "published"])
def foreign(request, tmp_path, rng):
    """Weights without a softmax: ours in that format, and the published ones if they are here."""
    if request.param == "published":
        path = request.getfixturevalue("fixtures") / "allennlp"
        return [path / "options.json", path / "lm_weights.hdf5"]
    settings = bilm_options()
    return list(write_bilm(tmp_path / "foreign", settings, bilm_weights(settings, rng)))


@pytest.mark.slow
def test_weights_without_a_softmax_first_learn_one_alone(foreign, domain, tmp_path):
    reports, result = ran(foreign, domain, tmp_path / "run")
    old = pretrained.load(*foreign).model.state_dict()
    alone = pretrained.load(tmp_path / "run" / "softmax")
    assert_close(alone.model.state_dict(), old, rtol=0, atol=0)
    assert alone.vocabulary == domain.vocabulary
    after = pretrained.load(tmp_path / "run")
    moved = [
        not torch.equal(old[name], weight) for name, weight in after.model.state_dict().items()
    ]
    assert all(moved)
    assert [report.step for report in reports] == [10, 20, 10, 20]
    first, second = (reports[at].scores["perplexity"] for at in (1, 3))
    assert result.before == pytest.approx(first, rel=1e-5)
    assert result.after == pytest.approx(second, rel=1e-5)
    assert result.after < result.before < len(domain.vocabulary)
    assert result.new_words == 0
    elmo = elmore.load(tmp_path / "run")
    assert np.isfinite(elmo.embed(["two cysts heal ."])[0].vectors).all()


@pytest.mark.slow
def test_a_stopped_run_is_resumed_in_either_stage(general, domain, tmp_path, rng):
    """A run that ends after each stage's first checkpoint, twice resumed, equals a whole one."""
    settings = bilm_options()
    sources = list(write_bilm(tmp_path / "foreign", settings, bilm_weights(settings, rng)))
    more = ("softmax_train.steps=10", "softmax_train.save_every=4", "train.steps=10",
            "train.save_every=4")  # fmt: skip
    _, whole = ran(sources, domain, tmp_path / "whole", *more)
    job = finetune(sources, domain.path, tmp_path / "run", recipe(*more), device="cpu")
    while not Run(tmp_path / "run" / "softmax").checkpoint_steps():
        next(job)
    job.close()
    job = finetune(sources, domain.path, tmp_path / "run", recipe(*more), device="cpu", resume=True)
    while not Run(tmp_path / "run").checkpoint_steps():
        next(job)
    job.close()
    reports, result = ran(sources, domain, tmp_path / "run", *more, resume=True)
    assert result == whole
    assert reports[0].step == 8
    for name in ("metrics.jsonl", "softmax/metrics.jsonl", "best/model.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    reports, again = ran(sources, domain, tmp_path / "run", *more, resume=True)
    assert (reports, again) == ([], whole)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [0, 1], ids=["the softmax", "all of it"])
def test_a_signal_ends_either_stage_and_nothing_is_measured(domain, tmp_path, rng, stage):
    settings = bilm_options()
    sources = list(write_bilm(tmp_path / "foreign", settings, bilm_weights(settings, rng)))
    more = ("softmax_train.steps=8", "train.steps=8", "softmax_train.log_every=2",
            "train.log_every=2")  # fmt: skip
    _, whole = ran(sources, domain, tmp_path / "whole", *more)
    reports, stages = [], -1
    for report in finetune(sources, domain.path, tmp_path / "run", recipe(*more), device="cpu"):
        stages += report.step == 2
        if (stages, report.step) == (stage, 4):
            os.kill(os.getpid(), signal.SIGTERM)
        reports.append(report)
    assert stages == stage
    assert reports[-1].stop_reason == "SIGTERM"
    assert reports[-1].step < 8
    _, result = ran(sources, domain, tmp_path / "run", *more, resume=True)
    assert result == whole


def test_a_softmax_that_ended_early_stays_as_it_is_when_resumed(domain, tmp_path, rng):
    settings = bilm_options()
    sources = list(write_bilm(tmp_path / "foreign", settings, bilm_weights(settings, rng)))
    more = (
        "softmax_train.evaluate_every=1", "softmax_train.patience=1", "softmax_train.steps=200",
        "softmax_train.lr=0.5",
    )  # fmt: skip
    ran(sources, domain, tmp_path / "run", *more)
    (last,) = Run(tmp_path / "run" / "softmax").checkpoint_steps()[-1:]
    assert last < 200
    ran(sources, domain, tmp_path / "run", *more, resume=True)
    assert Run(tmp_path / "run" / "softmax").checkpoint_steps()[-1] == last


def test_a_folder_in_which_another_process_trains_is_left_alone(domain, tmp_path, rng):
    settings = bilm_options()
    sources = list(write_bilm(tmp_path / "foreign", settings, bilm_weights(settings, rng)))
    with (
        lock.acquire(tmp_path / "run" / "lock"),
        pytest.raises(DataError, match=r"run: process \d+ on .* working there since"),
    ):
        ran(sources, domain, tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_without_validation_text_there_is_nothing_to_say(general, tmp_path):
    text = toy_corpus.prepare_corpus(tmp_path, "shards", DOMAIN)
    reports, result = ran([general], text, tmp_path / "run", "train.steps=2")
    assert (result.before, result.after) == (None, None)
    assert result.new_words > 5
    assert reports[-1].scores == {}


def test_an_adaptive_softmax_keeps_its_words(corpus, domain, tmp_path):
    settings = toy_corpus.recipe("softmax.kind=adaptive", "train.steps=2")
    list(pretrain(settings, corpus.path, tmp_path / "general", device="cpu"))
    _, result = ran([tmp_path / "general"], domain, tmp_path / "run", "train.steps=4")
    assert result.new_words == 0
    assert isinstance(pretrained.load(tmp_path / "run").softmax, AdaptiveSoftmax)
    assert math.isfinite(result.after)


@pytest.mark.parametrize("char_dim", [0, 4], ids=["words alone", "words and characters"])
def test_a_table_of_words_gets_a_softmax_over_its_own_words(
    domain, tmp_path, rng, caplog, char_dim
):
    words = ("the", "in", "lesions", "liver", "zebra", ".")
    many_langs(tmp_path / "m", rng, words=words, char_dim=char_dim, characters="theinugrowlscy.")
    old = pretrained.load(tmp_path / "m")
    reports, result = ran([tmp_path / "m"], domain, tmp_path / "run", "train.steps=4")
    best = pretrained.load(tmp_path / "run")
    assert best.vocabulary == old.vocabulary != domain.vocabulary
    assert set(words) < set(best.vocabulary.words)
    assert (result.num_words, result.new_words) == (len(old.vocabulary), 0)
    assert best.softmax.num_words == best.config.words.num_words == len(old.vocabulary)
    assert result.after < result.before < len(old.vocabulary)
    assert [report.step for report in reports] == [10, 20, 4]
    vectors = elmore.load(tmp_path / "run").embed(["two cysts in the liver ."])[0].vectors
    assert vectors.shape == (6, 12)
    assert np.isfinite(vectors).all()


def test_the_tuned_model_is_named_like_its_run_and_says_what_it_came_from(domain, tmp_path, rng):
    many_langs(tmp_path / "m", rng, word_dim=0, characters="theinugrowlscy.")
    ran([tmp_path / "m"], domain, tmp_path / "tuned", "train.steps=1")
    card = pretrained.load(tmp_path / "tuned").card
    assert card.name == "tuned"
    parent = pretrained.load(tmp_path / "m").card.source
    assert card.training["from"]["name"] == parent != ""
    assert card.source == f"fine-tuned from {parent}"
    assert card.licence == "unknown"


def test_the_card_of_a_tuned_model_has_the_licences_of_both_texts(
    general, domain, tmp_path, caplog
):
    list(finetune([general], domain.path, tmp_path / "a", recipe("train.steps=1"), device="cpu"))
    assert "the licence of the text is unknown" in caplog.text
    caplog.clear()
    settings = ("train.steps=1", "card.licence=CC-BY-4.0", "card.data=eLife", "card.language=en")
    list(finetune([general], domain.path, tmp_path / "b", recipe(*settings), device="cpu"))
    assert "licence" not in caplog.text
    card = pretrained.load(tmp_path / "b").card
    name = pretrained.load(general).card.name
    assert card.licence == f"unknown ({name}); CC-BY-4.0 (the text of the fine-tuning)"
    assert (card.language, card.source) == ("en", f"fine-tuned from {name}")
    assert card.data.endswith("; then eLife")


def test_a_model_of_another_alphabet_learns_a_softmax_too(domain, tmp_path, rng):
    """ELMoForManyLangs without its table of words: its marks are not those of the text."""
    many_langs(tmp_path / "m", rng, word_dim=0, characters="theinugrowlscy.")
    _, result = ran([tmp_path / "m"], domain, tmp_path / "run", "train.steps=4")
    assert result.after < len(domain.vocabulary)
    assert pretrained.load(tmp_path / "run").vocabulary == domain.vocabulary


def test_too_little_text_leaves_no_run_behind(general, domain, tmp_path):
    with pytest.raises(DataError, match="too few for 4000 rows"):
        ran([general], domain, tmp_path / "run", "stream.batch_size=4000")
    assert not (tmp_path / "run").exists()


def test_the_recipe_says_where_it_came_from(general, domain, tmp_path):
    ran([general], domain, tmp_path / "run", "train.steps=1")
    said = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert said.pop("model") == [str(general)]
    assert said.pop("model_sha256") == model_digest(pretrained.load(general))
    assert said.pop("model_softmax_sha256") == softmax_digest(pretrained.load(general))
    assert said.pop("corpus") == domain.index["sha256"]
    del said["format"]
    expected = replace(recipe(), train=replace(recipe().train, steps=1))
    assert config.build(FinetuneConfig, said, "recipe.json") == expected


def test_a_run_is_resumed_only_with_the_same_weights(general, domain, corpus, tmp_path):
    """Whatever lies where the model was."""
    here, out = tmp_path / "here", tmp_path / "run"
    shutil.copytree(general, here)
    ran([here], domain, out, "train.steps=1")
    shutil.rmtree(here)
    list(pretrain(toy_corpus.recipe("train.steps=1"), corpus.path, here, device="cpu"))
    with pytest.raises(ConfigError, match=r"another recipe \(model_sha256 '"):
        ran([here], domain, out, "train.steps=1", resume=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_on_a_gpu_it_gets_better_too(general, domain, tmp_path, rng):
    *_, result = finetune([general], domain.path, tmp_path / "ours", recipe(), device="cuda")
    assert result.new_words > 5
    old = measured(pretrained.load(general), domain)
    assert result.before == pytest.approx(old.perplexity, rel=1e-3)
    assert result.after < 0.8 * result.before
    settings = bilm_options()
    sources = list(write_bilm(tmp_path / "foreign", settings, bilm_weights(settings, rng)))
    *_, result = finetune(sources, domain.path, tmp_path / "theirs", recipe(), device="cuda")
    assert result.after < result.before < len(domain.vocabulary)
