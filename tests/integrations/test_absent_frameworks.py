"""Without its framework, an integration says in one sentence what to install."""

import importlib
import sys

import pytest

from elmore import integrations
from elmore.errors import DataError
from tests.cli.running import elmore_command

SENTENCES = {
    ("onnx", "onnxruntime"): r"ONNX needs onnxruntime: pip install 'elmore\[onnx\]'",
    ("flair", "flair"): "Flair vectors need flair: pip install flair",
    ("keras", "keras"): "a Keras layer needs keras: pip install keras",
}


@pytest.fixture
def without(monkeypatch):
    def forget(integration: str, framework: str) -> str:
        name = f"elmore.integrations.{integration}"
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.delattr(integrations, integration, raising=False)
        monkeypatch.setitem(sys.modules, framework, None)
        return name

    return forget


@pytest.mark.parametrize(("names", "sentence"), SENTENCES.items(), ids=str)
def test_what_is_absent_is_named(without, names, sentence):
    with pytest.raises(DataError, match=sentence):
        importlib.import_module(without(*names))


def test_export_without_its_extra_is_one_sentence(without, tmp_path):
    without("onnx", "onnxruntime")
    done = elmore_command("export", "english", str(tmp_path / "model.onnx"))
    assert (done.code, done.out) == (1, "")
    assert done.err == "elmore: ONNX needs onnxruntime: pip install 'elmore[onnx]'\n"
    assert not list(tmp_path.iterdir())
