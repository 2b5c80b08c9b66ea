"""`elmore pretrain` with a teacher: what it refuses, what it leaves behind, how it goes on."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import elmore
from elmore import config
from elmore.errors import ConfigError
from elmore.lm import evaluate as evaluation
from elmore.lm.pretrain import pretrain
from elmore.train import runs
from elmore.train.runs import Run
from elmore.weights import folder, pretrained
from elmore.weights.digest import model_digest
from tests.support import toy_corpus, toy_teacher
from tests.support.cli_runner import run_elmore
from tests.support.fake_checkpoints import many_langs


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> Path:
    return toy_teacher.save(tmp_path_factory.mktemp("teacher") / "model")


def taught(teacher: Path, *overrides: str):
    return toy_corpus.recipe(f"distillation.teacher={teacher}", *overrides)


@pytest.fixture(scope="module")
def run(corpus, teacher, tmp_path_factory):
    """A run to its end, and its reports."""
    path = tmp_path_factory.mktemp("runs") / "run"
    settings = taught(teacher, "card.licence=MIT", "card.name=Polly", "train.keep_checkpoints=3")
    return path, list(pretrain(settings, corpus.path, path, device="cpu")), settings


def files(path: Path) -> dict[str, bytes]:
    found = [one for one in path.rglob("*") if one.is_file() and "events" not in one.name]
    return {str(one.relative_to(path)): one.read_bytes() for one in found}


def test_a_run_shows_the_loss_of_the_words_and_apart_from_it_that_of_the_layers(run):
    path, reports, _ = run
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 24
    assert all(0 < line["auxiliary_loss"] < 2 < line["loss"] for line in lines)
    assert lines[-1]["auxiliary_loss"] < 0.5 * lines[0]["auxiliary_loss"]
    assert reports[-1].metrics["auxiliary_loss"] < reports[0].metrics["auxiliary_loss"]


def test_the_model_has_no_other_weights_than_one_without_a_teacher(run, corpus, tmp_path):
    path, reports, _ = run
    alone = tmp_path / "alone"
    list(pretrain(toy_corpus.recipe("train.steps=1"), corpus.path, alone, device="cpu"))
    assert {one.name for one in (path / "best").iterdir()} == {
        one.name for one in (alone / "best").iterdir()
    }
    for name in ("model", "softmax"):
        result, expected = (
            load_file(folder / "best" / f"{name}.safetensors") for folder in (path, alone)
        )
        assert {key: value.shape for key, value in result.items()} == {
            key: value.shape for key, value in expected.items()
        }
    best = min(report.scores["perplexity"] for report in reports if report.scores)
    result = evaluation.evaluate(path, corpus.path, device="cpu")
    assert result.perplexity == pytest.approx(best, rel=1e-6)
    assert elmore.load(path).embed(["two ships come ."])[0].vectors.shape == (4, 12)


def test_a_checkpoint_has_the_maps_and_the_states_but_not_the_weights_of_the_teacher(run):
    checkpoint = run[0] / "checkpoints" / "step-00000024"
    weights = load_file(checkpoint / "model.safetensors")
    assert {name.split(".")[0] for name in weights} == {"bilm", "softmax", "layer_maps"}
    assert weights["layer_maps.3.weight"].shape == (8, 6)
    state = load_file(checkpoint / "recurrent_state.safetensors")
    assert set(state) == {"output", "cell", "teacher_output", "teacher_cell"}
    assert state["teacher_cell"].shape == (4, 2, 2, 16)
    moments = load_file(checkpoint / "optimizer.safetensors")
    assert len({name.split(".")[0] for name in moments}) == len(weights)


def test_the_card_names_the_teacher_and_both_licences(run, teacher):
    path, _, settings = run
    card = pretrained.load(path).card
    assert card.training["teacher"] == {
        "name": "Miss Toy",
        "licence": "CC0-1.0",
        "data": "no text",
        "sha256": model_digest(pretrained.load(teacher)),
    }
    assert card.training["recipe"]["distillation"] == {
        "teacher": "Miss Toy",
        "weight": 1.0,
        "soft_targets": 0.0,
    }
    assert card.licence == "CC0-1.0 (Miss Toy); MIT (the training text)"
    assert card.source == "trained with elmore, distilled from Miss Toy"
    assert "distilled from Miss Toy" in (path / "best" / "README.md").read_text()
    recipe = config.read_json(path / "recipe.json")
    assert (recipe["format"], runs.FORMAT) == (11, 11)
    assert recipe["distillation"] == {"teacher": str(teacher), "weight": 1.0, "soft_targets": 0.0}
    assert settings.distillation.teacher == str(teacher)


@pytest.mark.parametrize("step", [8, 16])
def test_a_resumed_run_is_the_run_that_never_stopped_bit_for_bit(run, corpus, tmp_path, step):
    """With dropout, and states that are carried over half of the sentences."""
    path, _, settings = run
    out = tmp_path / "run"
    shutil.copytree(path, out)
    for later in range(step + 8, 25, 8):
        Run(out).remove_checkpoint(later)
    shutil.rmtree(out / "best")
    list(pretrain(settings, corpus.path, out, resume=True, device="cpu"))
    result, expected = files(out), files(path)
    assert sorted(result) == sorted(expected)
    for name, data in expected.items():
        assert result[name] == data, name


def test_the_states_of_the_teacher_matter_when_a_run_is_resumed(run, corpus, tmp_path):
    """So the test above would see it if they were lost."""
    path, _, settings = run
    out = tmp_path / "run"
    shutil.copytree(path, out)
    Run(out).remove_checkpoint(24)
    file = out / "checkpoints" / "step-00000016" / "recurrent_state.safetensors"
    state = load_file(file)
    save_file({k: v * (not k.startswith("teacher")) for k, v in state.items()}, file)
    list(pretrain(settings, corpus.path, out, resume=True, device="cpu"))
    assert files(out)["metrics.jsonl"] != files(path)["metrics.jsonl"]


def test_a_run_is_resumed_only_with_its_own_teacher(run, corpus, teacher, tmp_path):
    path, _, settings = run
    with_teacher, without = tmp_path / "with", tmp_path / "without"
    shutil.copytree(path, with_teacher)
    plain = toy_corpus.recipe("train.steps=2")
    list(pretrain(plain, corpus.path, without, device="cpu"))

    def refused(settings, out: Path) -> str:
        before = files(out)
        with pytest.raises(ConfigError, match="this run has another recipe") as error:
            list(pretrain(settings, corpus.path, out, resume=True, device="cpu"))
        assert files(out) == before
        return str(error.value)

    none = replace(settings, distillation=plain.distillation)
    assert "distillation.teacher" in refused(none, with_teacher)
    assert "distillation.teacher None ->" in refused(taught(teacher, "train.steps=2"), without)
    lighter = replace(settings, distillation=replace(settings.distillation, weight=0.5))
    assert "distillation.weight 1.0 -> 0.5" in refused(lighter, with_teacher)
    moved = tmp_path / "teacher"
    shutil.copytree(teacher, moved)
    shutil.rmtree(teacher)
    try:
        toy_teacher.save(teacher, cell_dim=20)  # another model where the teacher was
        assert "teacher_sha256" in refused(settings, with_teacher)
    finally:
        shutil.rmtree(teacher)
        shutil.copytree(moved, teacher)


@pytest.mark.parametrize(
    "overrides",
    [
        ("train.optimizer=muon", "train.ema_decay=0.5"),
        ("train.optimizer=adagrad", "train.grad_accum_steps=2"),
        ("train.precision=float64", "softmax.kind=adaptive"),
    ],
    ids=lambda values: " ".join(values),
)
def test_a_teacher_goes_with_every_kind_of_training(corpus, tmp_path, overrides):
    """It is stored in int8, as large ones are, and the student starts from another model."""
    wide = toy_teacher.save(tmp_path / "teacher", cell_dim=128, output_dim=32)
    folder.save(pretrained.load(wide), tmp_path / "int8", storage="int8")
    held = pretrained.load(tmp_path / "int8").model
    assert torch.int8 in {buffer.dtype for buffer in held.buffers()}
    shared = [one for one in overrides if one.startswith("softmax")]
    first = toy_corpus.recipe("train.steps=1", *shared)
    list(pretrain(first, corpus.path, tmp_path / "first", device="cpu"))
    settings = taught(tmp_path / "int8", *overrides, "train.steps=3", "train.log_every=1")
    reports = list(
        pretrain(settings, corpus.path, tmp_path / "run", init=[tmp_path / "first"], device="cpu")
    )
    losses = [report.metrics["auxiliary_loss"] for report in reports]
    assert len(losses) == 3
    assert all(0 < loss < 2 for loss in losses)


def test_a_teacher_runs_in_bf16_too(corpus, teacher, tmp_path):
    curves = []
    for precision in ("bf16", "float32"):
        settings = taught(teacher, f"train.precision={precision}", "train.steps=4")
        (report, *_) = pretrain(settings, corpus.path, tmp_path / precision, device="cpu")
        curves.append(report.metrics["auxiliary_loss"])
    assert 0 < abs(curves[0] - curves[1]) < 0.05 * curves[1]


def test_a_run_can_teach(run, corpus, tmp_path):
    settings = taught(run[0], "train.steps=1", "model.lstm.output_dim=4")
    list(pretrain(settings, corpus.path, tmp_path / "run", device="cpu"))
    assert pretrained.load(tmp_path / "run").card.training["teacher"]["name"] == "Polly"


def words_model(path: Path, corpus) -> Path:
    words = len(corpus.vocabulary)
    settings = toy_corpus.recipe(
        "model.characters=none", f"model.words={{num_words={words}, dim=5}}", "train.steps=1"
    )
    list(pretrain(settings, corpus.path, path, device="cpu"))
    return path


def short_words(path: Path) -> Path:
    settings = toy_corpus.recipe("model.characters.max_characters=20", "train.steps=1")
    text = toy_corpus.prepare_corpus(path.parent, "text", toy_corpus.sentences(30))
    list(pretrain(settings, text.path, path, device="cpu"))
    return path


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("none", r"^distillation\.teacher: \S+/none: no such file or folder, and no model of that"),
        ("recipe", r"^distillation\.teacher: tiny: .*tiny is a recipe of 'elmore pretrain'"),
        ("empty folder", r"^distillation\.teacher: \S+/empty folder: found nothing; expected"),
        (
            "one layer",
            r"^distillation\.teacher: lstm\.num_layers is 1 in \S+ and 2 in the recipe; ",
        ),
        ("three layers", r"lstm\.num_layers is 3 in \S+ and 2 in the recipe; they must be equal"),
        ("words", r"words reads words, the model of the recipe up to 50 bytes a word; both must"),
        ("short", r"short reads up to 20 bytes a word, the model of the recipe up to 50 bytes a"),
        ("many langs", r"reads other characters, the model of the recipe up to 50 bytes a word"),
        ("student of words", r"reads up to 50 bytes a word, the model of the recipe words; both"),
    ],
)
def test_a_model_that_cannot_teach_is_refused_before_anything_is_written(
    corpus, tmp_path, teacher, rng, kind, found
):
    makers = {
        "none": lambda path: path,
        "recipe": lambda path: "tiny",
        "empty folder": lambda path: path.mkdir() or path,
        "one layer": lambda path: toy_teacher.save(tmp_path / "teacher", num_layers=1),
        "three layers": lambda path: toy_teacher.save(tmp_path / "teacher", num_layers=3),
        "words": lambda path: words_model(path, corpus),
        "short": short_words,
        "many langs": lambda path: many_langs(path, rng) and path,
        "student of words": lambda path: teacher,
    }
    source = makers[kind](tmp_path / kind)
    words = [f"model.words={{num_words={len(corpus.vocabulary)}, dim=5}}", "model.characters=none"]
    settings = taught(source, *(words if kind == "student of words" else []))
    with pytest.raises(ConfigError, match=found) as error:
        next(pretrain(settings, corpus.path, tmp_path / "run", device="cpu"))
    assert not (tmp_path / "run").exists()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("override", "found"),
    [
        ("distillation.weight=0", "distillation.weight must be above 0, found 0.0"),
        ("distillation.weight=-1", "distillation.weight must be above 0, found -1.0"),
        ("distillation.weight=much", "weight: expected float, found 'much'"),
        ('distillation.teacher=""', "distillation.teacher is empty; name a model, or none"),
        ("distillation.soft_targets=1.5", "must be from 0 to 1, found 1.5"),
        ("distillation.soft_targets=-0.1", "must be from 0 to 1, found -0.1"),
        ("distillation.soft_targets=0.5", "soft_targets is 0.5, but there is no teacher; set"),
        ("distillation.teacher=3", "teacher: expected str, found 3"),
        ("distillation.pupil=me", "unknown key 'pupil'; known keys: teacher, weight"),
    ],
)
def test_impossible_settings_are_named(override, found):
    with pytest.raises(ConfigError, match=found):
        toy_corpus.recipe(override)


def start(corpus, folder: Path, teacher: Path, *overrides: str) -> None:
    """Begin a run with soft targets."""
    settings = taught(teacher, "distillation.soft_targets=0.5", *overrides)
    next(pretrain(settings, corpus.path, folder / "run", device="cpu"))


def test_soft_targets_need_a_softmax_over_the_same_words(corpus, tmp_path):
    other = toy_corpus.prepare_corpus(tmp_path, "other", ["two choirs come ."] * 20)
    cases = {
        "has no softmax": (toy_teacher.save(tmp_path / "bare"), ()),
        "predicts other words than": (toy_teacher.save(tmp_path / "words", other.vocabulary), ()),
        "an adaptive softmax does not": (tmp_path / "any", ("softmax.kind=adaptive",)),
    }
    for words, (source, overrides) in cases.items():
        with pytest.raises(ConfigError, match=f"distillation.soft_targets.* {words}"):
            start(corpus, tmp_path, source, *overrides)
        assert not (tmp_path / "run").exists()
    (tmp_path / "words" / "softmax.safetensors").unlink()
    with pytest.raises(
        ConfigError, match=r"teacher: .* put the model's softmax\.safetensors beside"
    ):
        start(corpus, tmp_path, tmp_path / "words")


def test_an_adaptive_softmax_of_a_teacher_gives_no_soft_targets(corpus, tmp_path):
    settings = toy_corpus.recipe("train.steps=1", "softmax.kind=adaptive")
    list(pretrain(settings, corpus.path, tmp_path / "teacher", device="cpu"))
    settings = taught(tmp_path / "teacher", "distillation.soft_targets=0.5")
    with pytest.raises(
        ConfigError, match=r"distillation\.soft_targets: \S+ has an adaptive softmax"
    ):
        next(pretrain(settings, corpus.path, tmp_path / "run", device="cpu"))


def test_a_run_with_soft_targets_is_resumed_bit_for_bit_and_with_no_other_share(corpus, tmp_path):
    teacher = toy_teacher.save(tmp_path / "teacher", corpus.vocabulary)
    settings = taught(teacher, "distillation.soft_targets=0.5", "card.name=Polly")
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    list(pretrain(settings, corpus.path, whole, device="cpu"))
    shutil.copytree(whole, stopped)
    Run(stopped).remove_checkpoint(24)
    shutil.rmtree(stopped / "best")
    for share in ("0", "0.6"):
        other = taught(teacher, f"distillation.soft_targets={share}", "card.name=Polly")
        with pytest.raises(ConfigError, match=r"distillation\.soft_targets 0\.5 -> "):
            list(pretrain(other, corpus.path, stopped, resume=True, device="cpu"))
    softmax = teacher / "softmax.safetensors"
    right = softmax.read_bytes()
    changed = load_file(softmax)
    save_file({name: weight + 0.1 for name, weight in changed.items()}, softmax)
    with pytest.raises(ConfigError, match="teacher_softmax_sha256"):
        list(pretrain(settings, corpus.path, stopped, resume=True, device="cpu"))
    softmax.write_bytes(right)
    list(pretrain(settings, corpus.path, stopped, resume=True, device="cpu"))
    assert files(stopped) == files(whole)


def test_none_is_no_teacher():
    assert toy_corpus.recipe("distillation.teacher=none") == toy_corpus.recipe()


def test_a_teacher_that_is_gone_is_named_when_a_run_is_resumed(corpus, tmp_path):
    here = toy_teacher.save(tmp_path / "teacher")
    settings = taught(here, "train.steps=2", "train.save_every=1")
    out = tmp_path / "run"
    list(pretrain(settings, corpus.path, out, device="cpu"))
    Run(out).remove_checkpoint(2)
    before = files(out)
    shutil.rmtree(here)
    with pytest.raises(ConfigError, match=r"distillation\.teacher: \S+/teacher: no such file"):
        list(pretrain(settings, corpus.path, out, resume=True, device="cpu"))
    assert files(out) == before


def test_the_command_line_shows_both_losses_and_its_help_has_no_new_option(
    corpus, teacher, tmp_path
):
    (tmp_path / "recipe.toml").write_text(
        f'{toy_corpus.RECIPE}\n[distillation]\nteacher = "{teacher}"\nweight = 2\n'
    )
    command = ("pretrain", str(tmp_path / "recipe.toml"), str(corpus.path), "--device", "cpu")
    result = run_elmore(*command, "-o", str(tmp_path / "run"), "--set", "train.steps=4")
    assert result.code == 0, result.err
    assert "  auxiliary loss " in result.err.splitlines()[0]
    assert "perplexity" in result.err.splitlines()[0]
    result = run_elmore(
        *command, "-o", str(tmp_path / "none"), "--set", "distillation.teacher=Miss"
    )
    assert result.code == 1
    assert result.err.startswith("elmore: distillation.teacher: Miss: no such file or folder")
    assert result.err.count("\n") == 1
    assert "distill" not in run_elmore("pretrain", "--help").out
