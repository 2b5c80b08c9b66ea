"""benchmarks/pack_corpus.py: what is unpacked is what was packed, or it is refused."""

import importlib

import pytest

from elmore.errors import DataError
from tests.support.scripts import ROOT, run_script
from tests.support.toy_corpus import prepare_corpus, sentences


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("pack_corpus")


@pytest.fixture
def corpus(tmp_path):
    return prepare_corpus(tmp_path, "corpus", sentences(60), sentences(20, seed=1)).path


def pack(script, corpus, parts, monkeypatch):
    monkeypatch.setattr(script, "WORDS_PER_PART", 100)
    parts.mkdir()
    script.pack(corpus, parts)
    return parts


def test_every_file_comes_back(script, corpus, tmp_path, monkeypatch):
    parts = pack(script, corpus, tmp_path / "parts", monkeypatch)
    assert len(list(parts.glob("train-00000.tokens.npy.*"))) > 2
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    script.unpack(parts, unpacked)
    assert {p.name: p.read_bytes() for p in unpacked.iterdir()} == {
        p.name: p.read_bytes() for p in corpus.iterdir()
    }


def test_a_lost_part_is_noticed(script, corpus, tmp_path, monkeypatch):
    parts = pack(script, corpus, tmp_path / "parts", monkeypatch)
    (parts / "train-00000.tokens.npy.001").unlink()
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    with pytest.raises(DataError, match="train-00000"):
        script.unpack(parts, unpacked)


@pytest.mark.parametrize("action", ["pack", "unpack"])
def test_wrong_folders_are_refused_before_anything_is_written(action, corpus, tmp_path, capsys):
    for source, destination in ((tmp_path / "nothing", tmp_path / "new"), (corpus, corpus)):
        with pytest.raises(SystemExit):
            run_script("benchmarks/pack_corpus.py", action, str(source), str(destination))
    assert "nothing/index.json" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
