import functools
import http.server
import shutil
import threading
import zipfile

import numpy as np
import pytest

import elmore
from elmore.weights import catalogue, pretrained
from tests.support.fake_checkpoints import bilm_options, bilm_weights, many_langs, write_bilm


@pytest.fixture
def server(tmp_path):
    """A file server on this machine, over tmp_path/remote."""
    (tmp_path / "remote").mkdir()
    handler = functools.partial(_Quiet, directory=tmp_path / "remote")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args) -> None:
        pass


@pytest.fixture
def known(monkeypatch, tmp_path):
    """Names for the models of the server, and an empty cache."""
    entries = {}
    monkeypatch.setattr(catalogue, "known_models", lambda: entries)
    monkeypatch.setenv("ELMORE_CACHE", str(tmp_path / "cache"))
    return entries


def entry(*files: str) -> catalogue.Entry:
    return catalogue.Entry(language="Klingon", licence="MIT", data="letters", files=files)


def test_a_model_by_name_is_downloaded_once_and_described_by_its_card(tmp_path, rng, server, known):
    settings = bilm_options()
    paths = write_bilm(tmp_path / "remote", settings, bilm_weights(settings, rng))
    known["klingon"] = entry(f"{server}/options.json", f"{server}/weights.hdf5")
    assert catalogue.model_status("klingon", known["klingon"]) == "remote"
    first = elmore.load("klingon")
    assert catalogue.model_status("klingon", known["klingon"]) == "downloaded"
    assert first.bundle.card.language == "Klingon"
    for path in paths:
        path.unlink()  # from now on the cache must do
    again = elmore.load("klingon")
    text = [["nuqneH"]]
    np.testing.assert_array_equal(first.embed(text)[0].vectors, again.embed(text)[0].vectors)
    cached = tmp_path / "cache" / "klingon"
    assert pretrained.model_files("klingon") == [cached / "options.json", cached / "weights.hdf5"]


def test_a_zip_by_name_is_the_model_inside(tmp_path, rng, server, known):
    (tmp_path / "m").mkdir()
    many_langs(tmp_path / "m", rng)
    with zipfile.ZipFile(tmp_path / "remote" / "144.zip", "w") as archive:
        for path in (tmp_path / "m").iterdir():
            archive.write(path, path.name)
    known["many"] = entry(f"{server}/144.zip")
    text = [["the", "bank"]]
    expected = elmore.load(tmp_path / "m").embed(text)[0].vectors
    np.testing.assert_array_equal(elmore.load("many").embed(text)[0].vectors, expected)


def test_a_changed_file_in_the_cache_is_noticed(tmp_path, rng, server, known):
    settings = bilm_options()
    write_bilm(tmp_path / "remote", settings, bilm_weights(settings, rng))
    known["klingon"] = entry(f"{server}/options.json", f"{server}/weights.hdf5")
    elmore.load("klingon")
    with (tmp_path / "cache" / "klingon" / "weights.hdf5").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"\x00\x00\x80\x3f")
    with pytest.raises(elmore.WeightsError, match="the cached file is damaged"):
        elmore.load("klingon")


def test_a_dead_address_is_reported_in_one_sentence(known):
    known["gone"] = entry("http://127.0.0.1:9/options.json", "http://127.0.0.1:9/weights.hdf5")
    with pytest.raises(
        elmore.WeightsError, match=r"127\.0\.0\.1:9/options\.json cannot be downloaded"
    ):
        elmore.load("gone")


def test_options_and_weights_may_come_in_either_order(tmp_path, rng):
    settings = bilm_options()
    options, weights = write_bilm(tmp_path, settings, bilm_weights(settings, rng))
    pairs = (options, weights), (weights, options), (weights,), (tmp_path,)
    vectors = [elmore.load(*pair).embed([["a"]])[0].vectors for pair in pairs]
    for other in vectors[1:]:
        np.testing.assert_array_equal(other, vectors[0])


def test_files_named_as_published_are_found_by_their_folder(tmp_path, rng):
    settings = bilm_options()
    options, weights = write_bilm(tmp_path, settings, bilm_weights(settings, rng))
    options.rename(tmp_path / "elmo_2x1024_128_2048cnn_1xhighway_options.json")
    weights.rename(tmp_path / "elmo_2x1024_128_2048cnn_1xhighway_weights.hdf5")
    assert elmore.load(tmp_path).num_layers == 3


def test_the_bundled_model_needs_no_name():
    elmo = elmore.load()
    assert elmo.embed(["It works at once ."])[0].vectors.shape == (5, elmo.width)
    assert elmo.bundle.card.licence


def test_a_bundled_model_that_was_changed_is_refused(tmp_path, monkeypatch):
    place = tmp_path / "bundled"
    shutil.copytree(pretrained.model_folder(catalogue.BUNDLED), place)
    monkeypatch.setattr(pretrained, "_local_paths", lambda name, entry: [place])
    assert elmore.load().width
    for name in ("model.safetensors", "vocabulary.txt"):
        path = place / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
        with pytest.raises(elmore.WeightsError, match=rf"{name}: its sha256 is"):
            elmore.load()
        path.write_bytes(whole)


def test_the_bundled_model_is_small_and_whole():
    place = pretrained.model_folder(catalogue.BUNDLED)
    sizes = {path.name: path.stat().st_size for path in place.iterdir()}
    assert sum(sizes.values()) <= 32_000_000
    bundle = pretrained.load()
    assert bundle.softmax is not None
    assert bundle.vocabulary is not None
    assert len(bundle.vocabulary) >= 50_000


def test_more_than_two_sources_are_refused():
    with pytest.raises(elmore.WeightsError, match="found 3 paths"):
        elmore.load("a", "b", "c")


def test_a_converted_model_has_the_licence_that_its_folder_states_and_no_other(tmp_path, rng):
    many_langs(tmp_path / "m", rng)
    assert pretrained.load(tmp_path / "m").card.licence == ""
    (tmp_path / "m" / "LICENSE.txt").write_text("\n  CC BY-NC 4.0\n\nand what it says\n")
    assert pretrained.load(tmp_path / "m").card.licence == "CC BY-NC 4.0"
    settings = bilm_options()
    folder = tmp_path / "b"
    folder.mkdir()
    write_bilm(folder, settings, bilm_weights(settings, rng))
    assert pretrained.load(folder).card.licence == ""
