"""What docs/integrations/huggingface.md and its example show is run."""

import re

import pytest

from tests.support import doc_blocks
from tests.support.scripts import run_script

pytest.importorskip("transformers", reason="transformers is not installed: make test-integrations")
pytest.importorskip(
    "sentence_transformers", reason="sentence-transformers is not there: make test-integrations"
)


@pytest.mark.parametrize("block", doc_blocks.integration_blocks("huggingface.md"))
def test_the_page_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    doc_blocks.run_block(block)


def test_a_tagger_is_trained_with_trainer():
    shown = run_script("examples/huggingface_trainer.py")
    assert re.search(r"farmer +who\n.*met +other\n.* a +other\n.*neighbour +whom\n", shown)
