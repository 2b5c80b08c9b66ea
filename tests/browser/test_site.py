"""What `elmore export SITE` writes, and what it refuses."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from elmore.browser import compile as wasm
from elmore.browser import site as sites
from elmore.browser.site import write_site
from elmore.errors import ConfigError, ElmoreError, WeightsError
from elmore.weights import checksums, folder, pretrained
from tests.support.cli_runner import run_elmore
from tests.support.fake_checkpoints import many_langs


def test_the_library_is_compiled_from_these_sources():
    assert wasm.WASM.read_bytes().endswith(wasm.source_digest()), "run `make wasm`"


def test_the_library_is_what_the_compiler_gives(tmp_path):
    pytest.importorskip("ziglang", reason="the compiler is not installed; `make wasm` installs it")
    wasm.compile_wasm(tmp_path / "again.wasm")
    assert (tmp_path / "again.wasm").read_bytes() == wasm.WASM.read_bytes()


def test_the_files_are_those_of_the_model_and_described(site, model):
    settings = json.loads((site / "model.json").read_text())
    assert settings["name"] == "this model"
    assert settings["model"]["lstm"]["num_layers"] == 2
    for name, entry in settings["files"].items():
        assert entry["bytes"] == (site / name).stat().st_size
        assert entry["sha256"] == checksums.file_sha256(site / name)
    for name in ("model.safetensors", "softmax.safetensors", "vocabulary.txt"):
        assert (site / name).read_bytes() == (model / name).read_bytes()


def test_the_whitening_is_that_of_the_model(site, model):
    whitening = pretrained.load(model).whitening
    settings = json.loads((site / "model.json").read_text())
    assert settings["whitening"] == list(whitening.layers) == ["2", "cloze"]
    assert "whitening.safetensors" in settings["files"]
    arrays = load_file(site / "whitening.safetensors")
    np.testing.assert_array_equal(arrays["mean"], whitening.mean)
    np.testing.assert_array_equal(arrays["projection"], whitening.projection.numbers)
    np.testing.assert_array_equal(arrays["projection.scale"], whitening.projection.scales)


def test_a_model_without_a_whitening_has_no_file_of_it(model, tmp_path):
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "model" / "whitening.npz").unlink()
    write_site(tmp_path / "site", tmp_path / "model")
    assert json.loads((tmp_path / "site" / "model.json").read_text())["whitening"] is None
    assert not (tmp_path / "site" / "whitening.safetensors").exists()


def test_the_whitening_counts_towards_the_size_of_the_model(site, model, tmp_path):
    names = ("model.safetensors", "softmax.safetensors", "vocabulary.txt", "whitening.safetensors")
    report = write_site(tmp_path / "site", model)
    assert report.model_bytes == sum((site / name).stat().st_size for name in names)


def test_the_page_may_ask_its_own_server_alone(site):
    page = (site / "index.html").read_text("utf-8")
    assert "default-src 'none'" in page
    assert "http:" not in page
    assert "https:" not in page


def test_a_large_model_is_stored_in_int8(model, tmp_path, monkeypatch):
    folder.save(pretrained.load(model), tmp_path / "float32", storage="float32")
    size = (tmp_path / "float32" / "model.safetensors").stat().st_size
    monkeypatch.setattr(sites, "MAX_BYTES", size)
    write_site(tmp_path / "site", tmp_path / "float32")
    assert (tmp_path / "site" / "model.safetensors").stat().st_size < size


def test_the_bundled_model_is_not_a_folder_of_its_name(model, tmp_path, monkeypatch):
    shutil.copytree(model, tmp_path / "english")
    monkeypatch.chdir(tmp_path)
    write_site(tmp_path / "site")
    bundled = pretrained.model_folder()
    for name in ("model.safetensors", "vocabulary.txt"):
        assert (tmp_path / "site" / name).read_bytes() == (bundled / name).read_bytes()


def test_a_model_that_is_too_large_is_refused_and_nothing_is_written(model, tmp_path, monkeypatch):
    monkeypatch.setattr(sites, "MAX_BYTES", 10_000)
    with pytest.raises(WeightsError, match=r"MB in int8, and a page in the browser may have 0 MB"):
        write_site(tmp_path / "site", model)
    assert list(tmp_path.iterdir()) == []


def test_a_newer_format_is_refused(model, tmp_path):
    shutil.copytree(model, tmp_path / "newer")
    settings = json.loads((model / "config.json").read_text("utf-8")) | {"format": 99}
    (tmp_path / "newer" / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match="format 99 is newer than this elmore reads"):
        write_site(tmp_path / "site", tmp_path / "newer")


def test_a_model_of_words_is_refused(tmp_path):
    many_langs(tmp_path / "de", np.random.default_rng(0))
    with pytest.raises(ConfigError, match="models that read bytes"):
        write_site(tmp_path / "site", tmp_path / "de")


def test_a_site_is_replaced_only_if_asked_and_only_a_site(model, tmp_path):
    write_site(tmp_path / "site", model)
    with pytest.raises(ElmoreError, match="exists already"):
        write_site(tmp_path / "site", model)
    write_site(tmp_path / "site", model, overwrite=True)
    (tmp_path / "site" / "mine.txt").write_text("mine")
    with pytest.raises(ElmoreError, match=r"contains 'mine.txt'"):
        write_site(tmp_path / "site", model, overwrite=True)


def test_the_command_writes_a_site_and_says_how_to_see_it(model, tmp_path):
    result = run_elmore("export", str(model), str(tmp_path / "site"))
    assert "python -m http.server -d" in result.err
    assert (tmp_path / "site" / "index.html").is_file()


def test_an_option_of_onnx_is_refused_for_a_site(model, tmp_path):
    result = run_elmore("export", str(model), str(tmp_path / "site"), "--storage", "float16")
    assert result.code == 1
    assert "only an ONNX file has this option" in result.err
