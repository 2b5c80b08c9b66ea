"""Models that other distributions install: found by name, checked, and never imported."""

import json
import sys
from importlib import metadata

import pytest

import elmore
from elmore.errors import WeightsError
from elmore.weights import catalogue, packages, pretrained
from tests.support.cli_runner import run_elmore
from tests.support.toy_packages import install, rename_distribution, save_model

CHECKED = ["config.json", "model.safetensors", "softmax.safetensors", "vocabulary.txt"]
AGAIN = (
    "reinstall it: pip install --force-reinstall --no-deps "
    r"PATH/elmore_model_toy-1\.0\.0-py3-none-any\.whl$"
)


@pytest.fixture
def target(tmp_path, monkeypatch):
    """A folder of installed packages."""
    path = tmp_path / "site"
    path.mkdir()
    monkeypatch.syspath_prepend(path)
    return path


@pytest.fixture
def toy(tmp_path, target):
    """The folder of an installed model."""
    return install(save_model(tmp_path / "model"), target)


def status(name):
    return catalogue.model_status(name, catalogue.known_models()[name])


def test_an_installed_model_is_found_by_its_name(toy):
    elmo = elmore.load("toy")
    assert elmo.bundle.card.name == "toy"
    assert elmo.bundle.card.licence == "MIT"
    assert pretrained.model_folder("toy") == toy
    assert status("toy") == "installed"
    facts = json.loads(run_elmore("info", "toy", "--json").out)
    assert facts["language"] == "Klingon"
    assert facts["sha256"].keys() >= set(CHECKED)
    rows = {row["name"]: row for row in json.loads(run_elmore("models", "--json").out)}
    assert rows["toy"]["state"] == "installed"
    assert rows["toy"]["training data"] == "letters"


def test_only_the_metadata_of_model_packages_are_parsed(toy, monkeypatch):
    parsed = []
    parse = metadata.Distribution.metadata

    def recorded(distribution):
        parsed.append(parse.fget(distribution)["Name"])
        return parse.fget(distribution)

    monkeypatch.setattr(metadata.Distribution, "metadata", property(recorded))
    ((package,),) = packages.installed_packages().values()
    assert set(parsed) == {package.distribution}


def test_no_code_of_a_package_runs(toy):
    (toy / "__init__.py").write_text("raise SystemExit('it ran')")
    assert elmore.load("toy").width
    assert "elmore_model_toy" not in sys.modules


@pytest.mark.parametrize("name", CHECKED)
def test_a_changed_file_is_refused(toy, name):
    path = toy / name
    whole = path.read_bytes()
    path.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
    with pytest.raises(WeightsError, match=rf"{name}: its sha256 .*: {AGAIN}"):
        elmore.load("toy")


@pytest.mark.parametrize("name", CHECKED)
def test_a_missing_file_is_refused(toy, name):
    (toy / name).unlink()
    with pytest.raises(WeightsError, match=f"the file is missing; {AGAIN}"):
        elmore.load("toy")


@pytest.mark.parametrize("name", CHECKED)
def test_a_file_without_its_checksum_is_refused(toy, name):
    (toy / f"{name}.sha256").unlink()
    with pytest.raises(WeightsError, match="expected a record beside it"):
        elmore.load("toy")


def test_a_package_without_softmax_and_word_list_embeds(toy):
    for name in ("softmax.safetensors", "vocabulary.txt"):
        (toy / name).unlink()
        (toy / f"{name}.sha256").unlink()
        elmo = elmore.load("toy")
        assert elmo.embed(["a toy"])[0].vectors.shape == (2, elmo.width)
    assert elmo.bundle.vocabulary is None


def test_two_packages_with_one_name_are_both_named_and_neither_is_loaded(tmp_path, target):
    install(save_model(tmp_path / "model"), target)
    rename_distribution(target, "elmore-model-toy", "toys-of-another")
    install(save_model(tmp_path / "other"), target, version="2.0")
    both = "toy: the name of the package .* and of the package .*; uninstall a package"
    with pytest.raises(WeightsError, match=both) as refused:
        elmore.load("toy")
    assert "elmore-model-toy 2.0" in str(refused.value)
    assert "toys-of-another 1.0.0" in str(refused.value)
    assert status("toy") == "conflict"
    assert elmore.load("english").width


def test_a_package_cannot_take_the_name_of_the_bundled_or_a_published_model(tmp_path, target):
    install(save_model(tmp_path / "model"), target)
    (points,) = target.glob("*.dist-info/entry_points.txt")
    for name, kind in (("english", "bundled"), ("original", "published")):
        points.write_text(f"[{packages.GROUP}]\n{name} = elmore_model_toy\n")
        words = f"{name}: the name of the {kind} model and of the package elmore-model-toy 1.0.0"
        with pytest.raises(WeightsError, match=words):
            elmore.load(name)
        assert status(name) == "conflict"


def test_an_earlier_entry_of_the_path_hides_a_later_one(tmp_path, monkeypatch):
    for number in (1, 2):
        path = tmp_path / f"site{number}"
        model = save_model(tmp_path / f"model{number}", data=f"text {number}")
        install(model, path, version=f"{number}.0")
        monkeypatch.syspath_prepend(path)
    assert catalogue.find_model("toy").data == "text 2"


@pytest.mark.parametrize(
    "value", ["elmore_model_gone", "elmore_model.toy", "toy:load", "a b", "os", "__main__"]
)
def test_an_entry_point_without_its_package_is_one_sentence(tmp_path, target, value, monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)  # as in a script
    install(save_model(tmp_path / "model"), target)
    (points,) = target.glob("*.dist-info/entry_points.txt")
    points.write_text(f"[{packages.GROUP}]\ntoy = {value}\n")
    with pytest.raises(WeightsError, match=rf"elmore-model-toy 1\.0\.0 registers .*; {AGAIN}"):
        elmore.load("toy")
    assert catalogue.known_models()["toy"].language == "unknown"


@pytest.mark.parametrize(
    "text", [b"[elmore.models]\nno value\n", b"\xff\xfe", b"[", b"= =\n", b"[elmore.models]\nx=\n"]
)
def test_damaged_metadata_of_one_package_hides_no_other(toy, target, text):
    broken = target / "broken-1.0.dist-info"
    broken.mkdir()
    (broken / "entry_points.txt").write_bytes(text)
    assert elmore.load("toy").width
    assert elmore.load().width


def test_a_package_with_a_damaged_card_is_still_listed(toy):
    (toy / "config.json").write_text("{")
    assert catalogue.known_models()["toy"].licence == "unknown"
    with pytest.raises(WeightsError, match=AGAIN):
        elmore.load("toy")


@pytest.mark.parametrize("place", ["checkout", "elsewhere", "site-packages"])
def test_a_known_model_that_is_not_installed_says_what_installs_it(tmp_path, monkeypatch, place):
    source = tmp_path / "models" / "english-large"
    if place != "site-packages":
        source.mkdir(parents=True)
        (source / "pyproject.toml").touch()
    monkeypatch.setattr(packages, "CHECKOUT", tmp_path)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path if place == "checkout" else tmp_path / "other")
    expected = {
        "checkout": "./models/english-large",
        "elsewhere": str(source),
        "site-packages": "PATH/elmore_model_english_large-VERSION-py3-none-any.whl",
    }
    assert status("english-large") == "not installed"
    for command in ("info", "embed --model"):
        result = run_elmore(*command.split(), "english-large")
        assert result.code == 1
        assert f"(pip install {expected[place]}), or pass" in result.err
        assert "install elmore-model-english-large" not in result.err  # anybody could publish it


def test_the_checkout_has_the_source_of_the_model_that_is_named():
    if not (packages.CHECKOUT / "models").is_dir():
        pytest.skip("elmore does not run from a checkout")
    assert packages.install_source("english-large", "x").endswith("models/english-large")
