"""Without its framework, an integration says in one sentence what to install.

This runs whether the frameworks are installed or not.
"""

import importlib
import sys
from pathlib import Path

import pytest

from elmore import integrations
from elmore.errors import ElmoreError
from tests.support.cli_runner import run_elmore

NEEDED = {  # integration: what it imports, what that is called, what installs it
    "flair": ("flair", "flair", "flair, as docs/integrations/flair.md describes"),
    "huggingface": ("transformers", "transformers", "'elmore[hf]'"),
    "keras": ("keras", "keras", "keras, and set KERAS_BACKEND=torch"),
    "onnx": ("onnxruntime", "onnxruntime", "'elmore[onnx]'"),
    "sentence_transformers": ("sentence_transformers", "sentence-transformers", "'elmore[hf]'"),
    "sklearn": ("sklearn", "scikit-learn", "'elmore[sklearn]'"),
    "spacy": ("spacy", "spaCy", "'elmore[spacy]'"),
}
OF_OTHERS = {
    "allennlp_bilm",
    "onnx_graph",
    "spacy_embedder",
    "spacy_tok2vec",
}  # nobody imports them
FREE = {"allennlp"}  # it needs nothing


@pytest.fixture
def without(monkeypatch):
    def forget(integration: str) -> str:
        """Let the integration be as if it was never imported, its framework never installed."""
        framework, *_ = NEEDED[integration]
        for name in [name for name in sys.modules if name.startswith("elmore.integrations.")]:
            monkeypatch.delitem(sys.modules, name)
        for name in [name for name in sys.modules if name.startswith(f"{framework}.")]:
            monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.setitem(sys.modules, framework, None)
        monkeypatch.delattr(integrations, integration, raising=False)
        return f"elmore.integrations.{integration}"

    return forget


def test_each_integration_is_asked():
    folder = Path(integrations.__file__).parent
    result = {path.stem for path in folder.iterdir() if path.name[0] != "_"}
    assert result == set(NEEDED) | OF_OTHERS | FREE


@pytest.mark.parametrize("integration", NEEDED)
def test_a_missing_package_is_named_with_its_install_command(without, integration):
    _, called, installed_by = NEEDED[integration]
    name = without(integration)
    with pytest.raises(ImportError) as result:  # as of any import that fails
        importlib.import_module(name)
    assert isinstance(result.value, ElmoreError)
    assert str(result.value) == f"{name} needs {called}: pip install {installed_by}"


def test_export_without_its_extra_is_reported_in_one_sentence(without, tmp_path):
    without("onnx")
    done = run_elmore("export", "english", str(tmp_path / "model.onnx"))
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "elmore: elmore.integrations.onnx needs onnxruntime: pip install 'elmore[onnx]'\n"
    )
    assert not list(tmp_path.iterdir())
