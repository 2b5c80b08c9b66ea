"""How a command finds its model: by --model, by its first argument, or the bundled one."""

import json

import pytest
import typer

from elmore.cli.options import take_model
from elmore.errors import WeightsError
from elmore.weights import pretrained
from tests.cli.test_cli import commands
from tests.support import toy_suite
from tests.support.cli_runner import run_elmore
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm

TRAINS_OR_CONVERTS = {"convert", "prepare", "pretrain", "report", "task", "models", "probe"}
"""They have no model, name it otherwise (--embedder, --init), or are groups."""


@pytest.fixture
def here(tmp_path, rng, monkeypatch):
    """A folder with a text, a corpus and a model."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("one or one\n")
    (tmp_path / "shards").mkdir()
    (tmp_path / "m").mkdir()
    settings = bilm_options()
    write_bilm(tmp_path / "m", settings, bilm_weights(settings, rng))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "option", "needed", "more", "expected"),
    [
        (["shards"], None, 1, False, (None, ["shards"])),
        (["m", "shards"], None, 1, False, ("m", ["shards"])),
        (["typo", "shards"], None, 1, False, ("typo", ["shards"])),  # loading it says so
        (["shards"], "small", 1, False, ("small", ["shards"])),
        ([], None, 0, True, (None, [])),
        (["text.txt"], None, 0, True, (None, ["text.txt"])),
        (["-"], None, 0, True, (None, ["-"])),
        (["*.txt"], None, 0, True, (None, ["*.txt"])),
        (["small", "text.txt"], None, 0, True, ("small", ["text.txt"])),
        (["m/weights.hdf5", "text.txt"], None, 0, True, ("m/weights.hdf5", ["text.txt"])),
        (["typo", "text.txt"], None, 0, True, ("typo", ["text.txt"])),
        (["text.txt", "a [b]"], None, 1, True, (None, ["text.txt", "a [b]"])),
        (["m", "text.txt", "a [b]"], None, 1, True, ("m", ["text.txt", "a [b]"])),
        (["text.txt", "a [b]"], "m", 1, True, ("m", ["text.txt", "a [b]"])),
    ],
)
def test_the_model_is_an_option_the_first_argument_or_the_bundled_one(
    here, arguments, option, needed, more, expected
):
    assert take_model(arguments, option, needed=needed, more=more) == expected


@pytest.mark.parametrize(("arguments", "option"), [(["a", "b", "c"], None), (["a", "b"], "m")])
def test_too_many_arguments_are_refused(here, arguments, option):
    with pytest.raises(typer.BadParameter, match="expected 1 after the model, found 2"):
        take_model(arguments, option, needed=1)


def test_every_command_that_reads_a_model_has_the_bundled_one_by_default():
    for words, command in commands():
        if words[0] in TRAINS_OR_CONVERTS - {"probe"} or words == ("probe",):
            continue
        named = {option.name: option for option in command.params}
        assert named["model"].required is False, words


def test_info_describes_the_bundled_model_unless_another_is_named(here):
    named, bundled = (json.loads(run_elmore("info", *words, "--json").out) for words in (["m"], []))
    assert named["licence"] == "unknown"
    assert bundled["licence"] == "CC-BY-SA-4.0"


@pytest.mark.parametrize(
    "command",
    [
        "change text.txt text.txt",
        "embed text.txt",
        "evaluate SHARDS",
        "export site",
        "finetune SHARDS -o run",
        "info",
        "neighbors text.txt",
        "probe context text.txt",
        "probe suite --data data",
        "probe uses one text.txt",
        "score text.txt",
        "serve --port 0",
        "surprisal text.txt",
    ],
)
@pytest.mark.parametrize("named", [[], ["--model", "english"]])
def test_only_a_named_model_is_searched_in_the_working_directory(
    here, corpus, monkeypatch, command, named
):
    toy_suite.write_blimp(here / "data" / "blimp")
    loaded = []

    def load(*sources, **_):
        loaded.append(sources)
        raise WeightsError("no model is needed")

    monkeypatch.setattr(pretrained, "load", load)
    if command.split()[0] in ("info", "serve"):  # the model is their argument
        named = named[1:]
    words = command.replace("SHARDS", str(corpus.path)).split()
    assert "no model is needed" in run_elmore(*words, *named).err
    assert loaded == [tuple(named[-1:])]


def test_a_folder_named_like_the_bundled_model_is_read_only_by_its_name(here):
    (here / "m").rename(here / "english")
    bundled, named = (
        json.loads(run_elmore("info", *words, "--json").out) for words in ([], ["english"])
    )
    assert bundled["licence"] == "CC-BY-SA-4.0"
    assert "model.safetensors" in bundled["sha256"]
    assert named["licence"] == "unknown"
    assert "weights.hdf5" in named["sha256"]
    assert pretrained.package_version().startswith("elmore ")
    assert pretrained.package_version("english") == ""
    assert pretrained.model_folder() != here / "english"


def test_the_name_of_a_recipe_is_not_taken_for_a_model(here):
    result = run_elmore("info", "tiny")
    assert result.code == 1
    assert "tiny is a recipe of 'elmore pretrain'" in result.err
    result = run_elmore("pretrain", "original-5.5B", "shards", "-o", "run")
    assert "original-5.5B: is a model, not a recipe; name a file, or one of english" in result.err
