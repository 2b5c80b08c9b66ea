"""Models that came from others: a card with names, licences and texts, and never a path."""

import json
import shutil
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import elmore
from elmore import config
from elmore.errors import ConfigError, DataError, MissingPackageError, WeightsError
from elmore.lm.config import FinetuneConfig
from elmore.lm.finetune import finetune
from elmore.lm.parents import ParentModel, derive_card, describe_parent
from elmore.lm.pretrain import pretrain
from elmore.train.runs import Run
from elmore.weights import folder, pretrained
from elmore.weights.bundle import Bundle, Card
from elmore.weights.digest import model_digest
from tests.support import toy_corpus, toy_teacher

STEPS = ("train.steps=2", "train.save_every=1", "train.evaluate_every=1")
PARENT = Card(name="Old Toy", language="Toy", licence="CC0-1.0", data="old tales")


@pytest.fixture(scope="module")
def parent(corpus, tmp_path_factory) -> Path:
    """A model folder with a licence and a text of its own, below a folder that no card may name."""
    path = tmp_path_factory.mktemp("secret-machine")
    list(pretrain(toy_corpus.recipe("train.steps=1"), corpus.path, path / "run", device="cpu"))
    bundle = pretrained.load(path / "run")
    card = replace(PARENT, training=bundle.card.training)
    folder.save(replace(bundle, card=card), path / "model")
    return path / "model"


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> Path:
    return toy_teacher.save(tmp_path_factory.mktemp("secret-machine") / "teacher")


def stated(out: Path) -> tuple[Card, str]:
    """The card of the best model of a run, and its README; neither has the path of a model."""
    text = (out / "best" / "README.md").read_text()
    assert "secret-machine" not in text
    assert "secret-machine" not in (out / "best" / "config.json").read_text()
    return pretrained.load(out).card, text


def test_the_card_names_the_initial_model_and_both_licences_and_texts(corpus, parent, tmp_path):
    settings = toy_corpus.recipe(*STEPS, "card.licence=MIT", "card.data=new tales")
    list(pretrain(settings, corpus.path, tmp_path / "run", init=[parent], device="cpu"))
    card, text = stated(tmp_path / "run")
    old = pretrained.load(parent)
    assert card.name == "run"
    assert card.licence == "CC0-1.0 (Old Toy); MIT (the training text)"
    assert card.data == "old tales; then new tales"
    assert card.source == "trained with elmore from the weights of Old Toy"
    assert card.training["from"] == {
        "name": "Old Toy",
        "licence": "CC0-1.0",
        "data": "old tales",
        "sha256": model_digest(old),
        "training": old.card.training,
    }
    assert "| licence | CC0-1.0 (Old Toy); MIT (the training text) |" in text
    assert "| training data | old tales; then new tales |" in text


def test_fine_tuning_states_the_same_of_its_parent(corpus, parent, tmp_path):
    table = {
        "stream": {"batch_size": 4, "unroll_steps": 5},
        "train": {"steps": 1, "warmup_steps": 0},
        "card": {"licence": "MIT", "data": "new tales"},
    }
    recipe = config.build(FinetuneConfig, table, "a recipe")
    list(finetune([parent], corpus.path, tmp_path / "tuned", recipe, device="cpu"))
    card, _ = stated(tmp_path / "tuned")
    settings = toy_corpus.recipe(*STEPS, "card.licence=MIT", "card.data=new tales")
    list(pretrain(settings, corpus.path, tmp_path / "run", init=[parent], device="cpu"))
    other, _ = stated(tmp_path / "run")
    assert card.training["from"] == other.training["from"]
    assert card.data == other.data
    assert card.licence == "CC0-1.0 (Old Toy); MIT (the text of the fine-tuning)"
    assert card.source == "fine-tuned from Old Toy"


def test_a_resumed_run_keeps_its_parent_when_that_is_gone(corpus, parent, tmp_path):
    settings = toy_corpus.recipe(*STEPS, "card.licence=MIT")
    here, out = tmp_path / "here", tmp_path / "run"
    shutil.copytree(parent, here)
    list(pretrain(settings, corpus.path, out, init=[here], device="cpu"))
    expected = stated(out)
    Run(out).remove_checkpoint(2)
    shutil.rmtree(out / "best")
    shutil.rmtree(here)
    list(pretrain(settings, corpus.path, out, init=[here], resume=True, device="cpu"))
    assert stated(out) == expected
    assert expected[0].training["from"]["name"] == "Old Toy"


def test_another_initial_model_in_the_same_place_is_not_taken_up(corpus, parent, tmp_path):
    """Before the first checkpoint its weights are needed again."""
    settings, out, here = toy_corpus.recipe(*STEPS), tmp_path / "run", tmp_path / "here"
    shutil.copytree(parent, here)
    list(pretrain(settings, corpus.path, out, init=[here], device="cpu"))
    shutil.rmtree(out / "checkpoints")
    shutil.rmtree(here)
    other = toy_corpus.recipe("train.steps=2", "train.seed=5")
    list(pretrain(other, corpus.path, here, device="cpu"))
    with pytest.raises(ConfigError, match=r"another recipe \(init_sha256 '"):
        list(pretrain(settings, corpus.path, out, init=[here], resume=True, device="cpu"))


def change_softmax(model: Path) -> None:
    bundle = pretrained.load(model)
    with torch.no_grad():
        bundle.softmax.bias.add_(1)
    shutil.rmtree(model)
    folder.save(bundle, model)


def test_another_softmax_of_the_same_initial_network_is_not_taken_up(corpus, parent, tmp_path):
    """It is copied, as the network is."""
    settings, out, here = toy_corpus.recipe(*STEPS), tmp_path / "run", tmp_path / "here"
    shutil.copytree(parent, here)
    list(pretrain(settings, corpus.path, out, init=[here], device="cpu"))
    change_softmax(here)
    Run(out).remove_checkpoint(2)  # the first remains, and nothing is copied again
    list(pretrain(settings, corpus.path, out, init=[here], resume=True, device="cpu"))
    shutil.rmtree(out / "checkpoints")
    with pytest.raises(ConfigError, match=r"another recipe \(init_softmax_sha256 '"):
        list(pretrain(settings, corpus.path, out, init=[here], resume=True, device="cpu"))


def test_fine_tuning_does_not_take_up_another_softmax(corpus, parent, tmp_path):
    table = {
        "stream": {"batch_size": 4, "unroll_steps": 5},
        "train": {"steps": 2, "warmup_steps": 0, "save_every": 1},
    }
    recipe, here = config.build(FinetuneConfig, table, "a recipe"), tmp_path / "here"
    shutil.copytree(parent, here)
    list(finetune([here], corpus.path, tmp_path / "tuned", recipe, device="cpu"))
    change_softmax(here)
    with pytest.raises(ConfigError, match=r"another recipe \(model_softmax_sha256 '"):
        list(finetune([here], corpus.path, tmp_path / "tuned", recipe, resume=True, device="cpu"))


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_run_that_does_not_know_its_initial_softmax_is_resumed(
    corpus, parent, tmp_path, checkpoints
):
    settings, out, here = toy_corpus.recipe(*STEPS), tmp_path / "run", tmp_path / "here"
    shutil.copytree(parent, here)
    list(pretrain(settings, corpus.path, out, init=[here], device="cpu"))
    recipe = json.loads((out / "recipe.json").read_text())
    del recipe["init_softmax_sha256"], recipe["parent"]["softmax_sha256"]
    (out / "recipe.json").write_text(json.dumps(recipe))
    change_softmax(here)
    Run(out).remove_checkpoint(2)
    if not checkpoints:
        Run(out).remove_checkpoint(1)
    *_, report = pretrain(settings, corpus.path, out, init=[here], resume=True, device="cpu")
    assert report.step == 2


def test_an_older_run_without_a_description_names_its_parent_by_the_last_part_of_its_path(
    corpus, parent, tmp_path
):
    settings, out, here = toy_corpus.recipe(*STEPS), tmp_path / "run", tmp_path / "here"
    shutil.copytree(parent, here)
    list(pretrain(settings, corpus.path, out, init=[here], device="cpu"))
    recipe = json.loads((out / "recipe.json").read_text())
    del recipe["parent"], recipe["init_sha256"], recipe["init_softmax_sha256"]
    (out / "recipe.json").write_text(json.dumps({**recipe, "format": 7}))
    Run(out).remove_checkpoint(2)
    list(pretrain(settings, corpus.path, out, init=[here], resume=True, device="cpu"))
    assert stated(out)[0].training["from"]["name"] == "Old Toy"
    Run(out).remove_checkpoint(2)
    shutil.rmtree(here)
    list(pretrain(settings, corpus.path, out, init=[here], resume=True, device="cpu"))
    card, _ = stated(out)
    assert card.source == "trained with elmore from the weights of here"
    assert card.licence == "unknown"


@pytest.mark.parametrize("kind", [ConfigError, DataError, MissingPackageError, WeightsError])
def test_an_older_run_is_resumed_whatever_is_wrong_with_its_parent(
    corpus, parent, tmp_path, monkeypatch, kind
):
    """It has a checkpoint, so it needs only a name."""

    def fail(*_: object) -> None:
        raise kind("the model cannot be loaded")

    settings, out = toy_corpus.recipe(*STEPS), tmp_path / "run"
    list(pretrain(settings, corpus.path, out, init=[parent], device="cpu"))
    recipe = json.loads((out / "recipe.json").read_text())
    del recipe["parent"], recipe["init_sha256"], recipe["init_softmax_sha256"]
    (out / "recipe.json").write_text(json.dumps({**recipe, "format": 7}))
    Run(out).remove_checkpoint(2)
    with monkeypatch.context() as patch:
        patch.setattr(pretrained, "load", fail)
        (report,) = pretrain(settings, corpus.path, out, init=[parent], resume=True, device="cpu")
    assert report.step == 2
    assert stated(out)[0].source == "trained with elmore from the weights of model"


def test_training_does_not_keep_the_initial_model_in_memory(corpus, parent, tmp_path, monkeypatch):
    loaded: list[weakref.ref] = []
    load = pretrained.load

    def record(*sources: str | Path) -> Bundle:
        bundle = load(*sources)
        loaded.extend((weakref.ref(bundle.model), weakref.ref(bundle.softmax)))
        return bundle

    monkeypatch.setattr(pretrained, "load", record)
    settings = toy_corpus.recipe(*STEPS, "train.log_every=1")
    run = pretrain(settings, corpus.path, tmp_path / "run", init=[parent], device="cpu")
    assert next(run).step == 1
    assert len(loaded) == 2
    assert all(reference() is None for reference in loaded)
    run.close()


def test_a_damaged_description_of_the_parent_is_named(corpus, parent, tmp_path):
    settings, out = toy_corpus.recipe(*STEPS), tmp_path / "run"
    list(pretrain(settings, corpus.path, out, init=[parent], device="cpu"))
    recipe = json.loads((out / "recipe.json").read_text())
    (out / "recipe.json").write_text(json.dumps({**recipe, "parent": {"name": 3}}))
    with pytest.raises(ConfigError, match=r"recipe\.json: parent: name: expected str, found 3"):
        list(pretrain(settings, corpus.path, out, init=[parent], resume=True, device="cpu"))


def test_a_student_with_initial_weights_names_parent_and_teacher(corpus, parent, teacher, tmp_path):
    settings = toy_corpus.recipe(*STEPS, f"distillation.teacher={teacher}", "card.licence=MIT")
    list(pretrain(settings, corpus.path, tmp_path / "run", init=[parent], device="cpu"))
    card, _ = stated(tmp_path / "run")
    assert card.source == (
        "trained with elmore from the weights of Old Toy, distilled from Miss Toy"
    )
    assert card.licence == "CC0-1.0 (Old Toy, Miss Toy); MIT (the training text)"
    assert card.training["from"]["name"] == "Old Toy"
    assert card.training["teacher"]["name"] == "Miss Toy"
    assert card.training["recipe"]["distillation"]["teacher"] == "Miss Toy"
    assert card.data.startswith("old tales; then a text of ")


def test_a_teacher_without_a_name_is_named_by_the_last_part_of_its_path(corpus, teacher, tmp_path):
    nameless = replace(pretrained.load(teacher), card=Card())
    folder.save(nameless, tmp_path / "secret-machine" / "owl")
    here = tmp_path / "secret-machine" / "owl"
    settings = toy_corpus.recipe(*STEPS, f"distillation.teacher={here}")
    list(pretrain(settings, corpus.path, tmp_path / "run", device="cpu"))
    card, _ = stated(tmp_path / "run")
    assert card.source == "trained with elmore, distilled from owl"
    assert card.training["recipe"]["distillation"]["teacher"] == "owl"


def test_the_bundled_model_is_named_with_the_version_that_it_came_with():
    found = describe_parent(pretrained.load("english"), ["english"])
    assert found.full_name == f"english (elmore {elmore.__version__})"
    assert found.licence == "CC-BY-SA-4.0"


@pytest.mark.parametrize(
    ("own", "licences", "expected"),
    [
        ("MIT", [], "MIT"),
        ("", [], ""),
        ("MIT", ["MIT", "MIT"], "MIT"),
        ("", [""], "unknown"),
        ("", ["MIT"], "MIT (m0); unknown (the training text)"),
        ("MIT", ["", "MIT"], "unknown (m0); MIT (m1, the training text)"),
        ("MIT", ["A (x); B (y)"], "[A (x); B (y)] (m0); MIT (the training text)"),
        ("C", ["A", "B"], "A (m0); B (m1); C (the training text)"),
    ],
)
def test_licences_are_stated_once_if_equal_and_else_with_their_owners(
    corpus, own, licences, expected
):
    models = [ParentModel(name=f"m{i}", licence=licence) for i, licence in enumerate(licences)]
    parent, teacher = (*models, None, None)[:2]
    card = derive_card(Card(licence=own), corpus, {}, parent=parent, teacher=teacher)
    assert card.licence == expected


def test_a_source_that_the_recipe_states_does_not_hide_the_parent(corpus):
    card = derive_card(Card(source="our shelf"), corpus, {}, parent=ParentModel(name="Old Toy"))
    assert card.source == "our shelf; trained with elmore from the weights of Old Toy"
