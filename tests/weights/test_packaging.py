"""A model as a package: what is in it, that pip installs it, and what is refused."""

import email
import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import elmore
from elmore.errors import ConfigError, ElmoreError, WeightsError
from elmore.weights import folder, packaging
from elmore.weights.packaging import package_model
from tests.support.cli_runner import run_elmore
from tests.support.toy_packages import save_model

ROOT = Path(elmore.__file__).parents[1]
WHEEL = "elmore_model_toy-1.0.0-py3-none-any.whl"
INFO = "elmore_model_toy-1.0.0.dist-info"


@pytest.fixture
def model(tmp_path):
    return save_model(tmp_path / "model")


def run(*command, path):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pip_installs_it_and_a_new_process_loads_it_by_name(tmp_path, model):
    shown = run_elmore("models", "package", str(model), "-o", str(tmp_path / "dist"))
    wheel = tmp_path / "dist" / WHEEL
    assert shown == (0, f"{wheel}\n", "")
    target = tmp_path / "target"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index")
    run(*pip, "--target", target, wheel, path=[])
    code = (
        "import elmore, json, sys; elmo = elmore.load('toy'); "
        "print(json.dumps(elmo.embed(['a toy'])[0].vectors.tolist())); "
        "assert 'elmore_model_toy' not in sys.modules"
    )
    result = json.loads(run(sys.executable, "-c", code, path=[ROOT, target]))
    expected = elmore.load(model).embed(["a toy"])[0].vectors
    np.testing.assert_allclose(np.array(result, np.float32), expected, rtol=0, atol=1e-7)


def test_the_metadata_say_what_it_is(tmp_path, model):
    (model / "LICENSE").write_text("Do as you like.\n")
    wheel = package_model(model, tmp_path, name="a-toy", version="2.1rc1")
    assert wheel.name == "elmore_model_a_toy-2.1rc1-py3-none-any.whl"
    info = "elmore_model_a_toy-2.1rc1.dist-info"
    with zipfile.ZipFile(wheel) as file:
        result = email.message_from_bytes(file.read(f"{info}/METADATA"))
        points = file.read(f"{info}/entry_points.txt").decode()
        assert file.read(f"{info}/licenses/elmore_model_a_toy/LICENSE") == b"Do as you like.\n"
        sums = file.read("elmore_model_a_toy/config.json.sha256").decode()
    assert (result["Name"], result["Version"]) == ("elmore-model-a-toy", "2.1rc1")
    assert (result["License"], result["License-File"]) == ("MIT", "elmore_model_a_toy/LICENSE")
    assert result["Requires-Dist"] == f"elmore>={elmore.__version__}"
    assert "Klingon" in result["Summary"]
    assert 'elmore.load("a-toy")' in result.get_payload()
    assert points == "[elmore.models]\na-toy = elmore_model_a_toy\n"
    assert sums.endswith("  config.json\n")


def test_the_same_model_gives_the_same_bytes(tmp_path, model):
    first = package_model(model, tmp_path / "a").read_bytes()
    for path in model.iterdir():
        os.utime(path, (1, 1))
    assert package_model(model, tmp_path / "b").read_bytes() == first


def test_only_the_files_of_a_model_are_packed(tmp_path, model):
    names = {path.name for path in model.iterdir()} - {"README.md"}
    assert names < folder.FILES
    (model / "notes.txt").write_text("mine")
    (model / "__init__.py").write_text("print('mine')")
    with zipfile.ZipFile(package_model(model, tmp_path)) as file:
        packed = {name.removeprefix("elmore_model_toy/") for name in file.namelist()}
        assert b"print" not in file.read("elmore_model_toy/__init__.py")
    assert {name for name in packed if "/" not in name} == {
        "__init__.py",
        "README.md",
        *(f"{name}{end}" for name in names for end in ("", ".sha256")),
    }


def test_a_card_cannot_add_headers(tmp_path):
    model = save_model(tmp_path / "m", licence="MIT\nName: other\x00", language="x\r\ny: SURROGATE")
    config = model / "config.json"
    config.write_text(config.read_text().replace("SURROGATE", "\\ud800"))
    for options in ({}, {"as_source": True}):
        package_model(model, tmp_path, **options)
    with zipfile.ZipFile(tmp_path / WHEEL) as file:
        result = email.message_from_bytes(file.read(f"{INFO}/METADATA"))
    assert result.get_all("Name") == ["elmore-model-toy"]
    assert result["License"] == "MIT Name: other"
    project = tomllib.loads((tmp_path / "toy/pyproject.toml").read_text())["project"]
    assert project["license"] == {"text": "MIT Name: other"}


def test_a_model_without_a_card_or_readme_is_named_by_its_folder(tmp_path):
    model = save_model(tmp_path / "nameless", name="", licence="", language="", data="")
    (model / "README.md").unlink()
    wheel = package_model(model, tmp_path)
    with zipfile.ZipFile(wheel) as file:
        result = email.message_from_bytes(
            file.read("elmore_model_nameless-1.0.0.dist-info/METADATA")
        )
    assert result["License"] is None
    assert result.get_payload().startswith("# nameless")


@pytest.mark.parametrize(
    "name", ["", "Toy", "my_toy", "toy.1", "-toy", "toy-", "a--b", "../toy", "é", "a b", "a\n"]
)
def test_a_name_that_is_not_one_of_a_distribution_is_refused(tmp_path, model, name):
    with pytest.raises(ConfigError, match="expected lower-case letters, digits"):
        package_model(model, tmp_path / "out", name=name)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "kind"), [("english", "bundled"), ("original", "published")])
def test_the_name_of_a_model_that_elmore_lists_is_refused(tmp_path, model, name, kind):
    with pytest.raises(ConfigError, match=f"the name of .* {kind} model; pass another --name"):
        package_model(model, tmp_path, name=name)


@pytest.mark.parametrize(
    "version",
    ["", "one", "1.0-beta", "v1", "1.0+local", "1..0", "1.0\n", "01.0", "1.00", "1.0rc01", "١.٠"],
)
def test_a_version_that_pip_does_not_know_is_refused(tmp_path, model, version):
    with pytest.raises(ConfigError, match="expected a version as in PEP 440"):
        package_model(model, tmp_path, version=version)


def drop_tensor(model):
    tensors = load_file(model / "model.safetensors")
    tensors.popitem()
    save_file(tensors, model / "model.safetensors")


def cut_file(model):
    path = model / "softmax.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


def wrong_record(model):
    (model / "config.json.sha256").write_text(f"{'0' * 64}  config.json\n")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (drop_tensor, "is missing"),
        (cut_file, "not a readable safetensors"),
        (wrong_record, "its sha256 is"),
    ],
)
def test_a_damaged_model_is_refused_before_anything_is_written(tmp_path, model, damage, words):
    damage(model)
    for options in ({}, {"as_source": True}):
        with pytest.raises(WeightsError, match=words):
            package_model(model, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_other_formats_are_converted_first(tmp_path):
    (tmp_path / "weights.hdf5").write_bytes(b"")
    for source in (tmp_path / "weights.hdf5", tmp_path, "original"):
        with pytest.raises(WeightsError, match="convert it first: elmore convert"):
            package_model(source, tmp_path)


def test_an_existing_wheel_or_source_is_replaced_only_on_request(tmp_path, model):
    for options in ({}, {"as_source": True}):
        path = package_model(model, tmp_path / "out", **options)
        with pytest.raises(ElmoreError, match=r"exists already; pass another .*, or --overwrite"):
            package_model(model, tmp_path / "out", **options)
        assert package_model(model, tmp_path / "out", overwrite=True, **options) == path
    (tmp_path / "out/toy/mine.txt").write_text("keep")
    with pytest.raises(ElmoreError, match=r"'mine\.txt', which elmore did not write"):
        package_model(model, tmp_path / "out", overwrite=True, as_source=True)


def test_a_wheel_that_fails_leaves_the_one_before(tmp_path, model, monkeypatch):
    path = package_model(model, tmp_path / "out")
    before = path.read_bytes()

    def fail(file, *_):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(packaging, "write_wheel", fail)
    with pytest.raises(OSError, match="No space left"):
        package_model(model, tmp_path / "out", overwrite=True)
    assert path.read_bytes() == before
    assert list((tmp_path / "out").iterdir()) == [path]


def test_the_source_is_a_project_with_the_model_in_it(tmp_path, model):
    path = package_model(model, tmp_path / "models", as_source=True)
    project = tomllib.loads((path / "pyproject.toml").read_text())
    assert project["project"]["name"] == "elmore-model-toy"
    assert project["project"]["entry-points"] == {"elmore.models": {"toy": "elmore_model_toy"}}
    packed = path / "elmore_model_toy"
    for name in ("model.safetensors", "softmax.safetensors"):
        assert (packed / name).read_bytes() == (model / name).read_bytes()
    assert elmore.load(packed).bundle.softmax is not None
    # the wheel made from the source is the wheel of the model
    again = package_model(packed, tmp_path / "b")
    assert again.read_bytes() == package_model(model, tmp_path / "a").read_bytes()


def test_pip_builds_the_same_files_from_the_source_whatever_git_ignores(
    tmp_path, model, monkeypatch
):
    backend = pytest.importorskip("hatchling.build", reason="hatchling is not installed")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*.safetensors\n*.sha256\n")
    monkeypatch.chdir(package_model(model, tmp_path / "models", as_source=True))
    (tmp_path / "built").mkdir()
    built = tmp_path / "built" / backend.build_wheel(str(tmp_path / "built"))
    wheel = package_model(model, tmp_path)
    assert built.name == wheel.name
    with zipfile.ZipFile(built) as result, zipfile.ZipFile(wheel) as expected:
        names = [n for n in expected.namelist() if n.startswith("elmore_model_toy/")]
        assert {n for n in result.namelist() if n.startswith("elmore_model_toy/")} == set(names)
        assert all(result.read(name) == expected.read(name) for name in names)
        points = result.read(f"{INFO}/entry_points.txt").split()
        assert points == [b"[elmore.models]", b"toy", b"=", b"elmore_model_toy"]
