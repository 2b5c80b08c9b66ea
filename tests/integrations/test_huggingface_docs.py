"""What docs/integrations/huggingface.md and its example show is run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import doc_blocks

pytest.importorskip("transformers", reason="transformers is not installed: make test-integrations")
pytest.importorskip(
    "sentence_transformers", reason="sentence-transformers is not there: make test-integrations"
)

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("block", doc_blocks.integration_blocks("huggingface.md"))
def test_the_page_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    doc_blocks.run_block(block)


def test_a_tagger_is_trained_with_trainer():
    done = subprocess.run(
        [sys.executable, "examples/huggingface_trainer.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(r"farmer +who\n.*met +other\n.* a +other\n.*neighbour +whom\n", done.stdout)
