"""What docs/integrations/huggingface.md and its example show is run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="transformers is not installed: make test-integrations")
pytest.importorskip(
    "sentence_transformers", reason="sentence-transformers is not there: make test-integrations"
)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/integrations/huggingface.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(3))
def test_a_block_of_the_page_runs(number, tmp_path, monkeypatch):
    assert len(BLOCKS) == 3
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCKS[number], "a block of the page", "exec"), {})


@pytest.mark.timeout(300)
def test_a_tagger_is_trained_with_trainer():
    done = subprocess.run(
        [sys.executable, "examples/huggingface_trainer.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.search(r"farmer +who\n.*met +other\n.* a +other\n.*neighbour +whom\n", done.stdout)
