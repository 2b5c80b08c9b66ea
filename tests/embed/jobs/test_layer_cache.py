import logging

import numpy as np
import pytest

from elmore import lock
from elmore.embed.embedder import Embedder
from elmore.embed.jobs import layer_cache
from elmore.embed.loading import load
from elmore.errors import DataError
from elmore.weights import pretrained, warm
from tests.support import toy_tasks

SENTENCES = [["the", "cat"], ["a", "much", "longer", "one", "."], ["the", "cat"], ["x"]]


@pytest.fixture
def elmo(tmp_path) -> Embedder:
    return load(toy_tasks.bilm(tmp_path / "bilm"), device="cpu")


def test_layers_are_the_embedders_to_the_rounding_of_float16(elmo, tmp_path):
    result = layer_cache.load_or_compute(elmo, SENTENCES, tmp_path / "cache").of(SENTENCES)
    assert result.dtype == np.float16
    expected = [sentence.vectors for sentence in elmo.embed(SENTENCES, layers="all")]
    np.testing.assert_allclose(result, np.concatenate(expected, axis=1), rtol=1e-3, atol=1e-4)


def test_layers_from_another_starting_state_are_others(tmp_path, runs):
    bundle = warm.add_warm_state(pretrained.load(toy_tasks.bilm(tmp_path / "bilm")))
    for state in ("zero", "warm", "warm"):
        elmo = Embedder(bundle, device="cpu", initial_state=state)
        result = layer_cache.load_or_compute(elmo, SENTENCES, tmp_path / "cache").of(SENTENCES[:1])
        expected = elmo.embed(SENTENCES[:1], layers="all")[0].vectors
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-4)
    assert runs == [3, 3]


def test_the_model_runs_once_and_each_distinct_sentence_once(elmo, tmp_path, runs):
    for order in (SENTENCES, SENTENCES[::-1]):
        layer_cache.load_or_compute(elmo, order, tmp_path / "cache").of(SENTENCES)
    assert runs == [3]
    assert len(list((tmp_path / "cache").glob("*.npy"))) == 1


def test_the_file_is_an_array_that_numpy_opens(elmo, tmp_path):
    layer_cache.load_or_compute(elmo, SENTENCES, tmp_path / "cache")
    (path,) = (tmp_path / "cache").glob("*.npy")
    assert np.load(path, mmap_mode="r").shape == (8, 3, 16)


@pytest.mark.parametrize("damage", ["cut", "flipped", "longer", "empty"])
def test_a_damaged_file_is_computed_again(elmo, tmp_path, runs, damage):
    before = layer_cache.load_or_compute(elmo, SENTENCES, tmp_path / "cache").of(SENTENCES)
    (path,) = (tmp_path / "cache").glob("*.npy")
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 1
    path.unlink()  # the map of before is still open
    path.write_bytes({"cut": data[:-1], "longer": data + b"x", "empty": b""}.get(damage, data))
    after = layer_cache.load_or_compute(elmo, SENTENCES, tmp_path / "cache").of(SENTENCES)
    assert runs == [3, 3]
    np.testing.assert_array_equal(after, before)


def test_files_of_a_killed_build_are_not_used(elmo, tmp_path, runs, monkeypatch):
    def killed(self, texts, **choices):
        yield from list(stream(self, texts, **choices))[:1]
        raise KeyboardInterrupt

    stream = Embedder.stream
    with monkeypatch.context() as patch:
        patch.setattr(Embedder, "stream", killed)
        with pytest.raises(KeyboardInterrupt):
            layer_cache.load_or_compute(elmo, SENTENCES, tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*.npy"))
    layer_cache.load_or_compute(elmo, SENTENCES, tmp_path / "cache")
    assert [path.suffix for path in (tmp_path / "cache").iterdir()].count(".part") == 0


def test_another_model_another_start_or_another_text_is_another_file(elmo, tmp_path):
    other = load(toy_tasks.bilm(tmp_path / "other", seed=1), device="cpu")
    warm = load(tmp_path / "bilm", device="cpu", initial_state="warm")
    keys = {
        layer_cache.cache_key(elmo, SENTENCES),
        layer_cache.cache_key(other, SENTENCES),
        layer_cache.cache_key(warm, SENTENCES),
        layer_cache.cache_key(elmo, SENTENCES[:1]),
        layer_cache.cache_key(elmo, [["the cat"]]),
        layer_cache.cache_key(elmo, [["the"], ["cat"]]),
    }
    assert len(keys) == 6


def test_layers_in_memory_are_those_on_the_disk_bit_for_bit(elmo, tmp_path):
    disk = layer_cache.load_or_compute(elmo, SENTENCES, tmp_path / "cache").of(SENTENCES)
    memory = layer_cache.compute(elmo, SENTENCES).of(SENTENCES)
    np.testing.assert_array_equal(memory, disk)


def test_layers_that_another_process_computes_are_waited_for(elmo, tmp_path, runs):
    _, path, _ = layer_cache._locate(elmo, SENTENCES, tmp_path / "cache")
    held = lock.acquire(path.with_name(f"{path.name}.lock"))
    told = logging.Handler()
    told.emit = lambda record: held.release() if "working there" in record.getMessage() else None
    logging.getLogger("elmore.lock").addHandler(told)  # it lets go when somebody waits
    try:
        layer_cache.load_or_compute(elmo, SENTENCES, tmp_path / "cache")
    finally:
        logging.getLogger("elmore.lock").removeHandler(told)
    assert not held.release.alive
    assert runs == [3]
    assert [result.name for result in (tmp_path / "cache").iterdir()] == [path.name]


def test_layers_on_the_disk_are_read_while_another_holds_their_lock(elmo, tmp_path, runs):
    layer_cache.load_or_compute(elmo, SENTENCES, tmp_path / "cache")
    (path,) = (tmp_path / "cache").iterdir()
    with lock.acquire(path.with_name(f"{path.name}.lock")):
        layer_cache.load_or_compute(elmo, SENTENCES, tmp_path / "cache")
    assert runs == [3]


def test_cached_layers_on_disk_are_found_and_nothing_is_written(elmo, tmp_path, runs):
    assert layer_cache.load(elmo, SENTENCES, tmp_path / "cache") is None
    assert not (tmp_path / "cache").exists()
    kept = layer_cache.load_or_compute(elmo, SENTENCES, tmp_path / "cache")
    result = layer_cache.load(elmo, SENTENCES, tmp_path / "cache")
    np.testing.assert_array_equal(result.of(SENTENCES), kept.of(SENTENCES))
    assert runs == [3]


def test_layers_know_their_size_and_whether_they_were_computed_now(elmo, tmp_path):
    first, second = (
        layer_cache.load_or_compute(elmo, SENTENCES, tmp_path / "cache") for _ in range(2)
    )
    assert first.seconds > 0
    assert second.seconds is None
    assert first.num_bytes == second.num_bytes == 8 * 3 * 16 * 2  # tokens, layers, width, float16


def test_empty_sentences_and_no_sentences_have_no_layers(elmo, tmp_path):
    assert layer_cache.load_or_compute(elmo, [[]], tmp_path / "cache").of([[]]).shape == (3, 0, 16)
    assert layer_cache.compute(elmo, []).of([]).shape == (3, 0, 16)


def test_a_path_that_cannot_be_written_is_named(elmo, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"could not be stored .*; set ELMORE_CACHE"):
        layer_cache.load_or_compute(elmo, SENTENCES, tmp_path / "file")
