"""Read the Python and shell blocks of the documentation, and run the Python ones.

Used by tests/test_readme, test_docs, test_guides and the tests of the integrations' pages.
"""

import contextlib
import re
import tempfile
from pathlib import Path

import pytest

from tests.support.cli_runner import run_elmore

DOCS = Path(__file__).parents[2] / "docs"
INTEGRATIONS = DOCS / "integrations"
GUIDES = [  # whose commands tests/test_guides.py runs
    *sorted((DOCS / "guides").glob("*.md")),
    *(DOCS / f"{name}.md" for name in ("embed", "neighbors", "seeing", "tasks", "train")),
]
PAGES = {  # of integrations, and how to know their blocks on the first page
    "flair.md": ("integrations.flair",),
    "huggingface.md": ("integrations.huggingface", "integrations.sentence_transformers"),
    "keras.md": ("integrations.keras",),
    "onnx.md": (),
    "scikit-learn.md": ("integrations.sklearn",),
    "spacy.md": ("import spacy",),
}

# Blocks that import one of these run where it is installed.
OF_EXTRAS = ("pandas",)


def python_blocks(page: Path) -> list:
    """The Python blocks of a page, each named by its number."""
    result = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [pytest.param(block, id=f"{page.name}-{number}") for number, block in enumerate(result)]


def integration_blocks(page: str) -> list:
    """The blocks of an integration's page, and its blocks on the first page."""
    short = python_blocks(INTEGRATIONS / "index.md")
    ours = [one for one in short if any(words in one.values[0] for words in PAGES[page])]
    return python_blocks(INTEGRATIONS / page) + ours


def run_block(block: str) -> None:
    """Run a block in an empty folder, or skip it by the name of what is not here."""
    for name in OF_EXTRAS:
        if re.search(rf"^(import|from) {name}\b", block, flags=re.MULTILINE):
            pytest.importorskip(name, reason=f"`make test-integrations` installs {name}")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name in re.findall(r'"(vectors\.\w+)"', block):  # written by `elmore embed`
            Path("text.txt").write_text("One line.\nand/or another line.\n", encoding="utf-8")
            assert run_elmore("embed", "text.txt", "-o", name).code == 0
        exec(compile(block, "a block of the docs", "exec"), {"__name__": "__main__"})


def commands(page: Path, label: str = "sh") -> list[str]:
    """The commands in the `sh` blocks of a page, in order, each on one line."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    result = re.findall(rf"```{label}\n(.*?)```", text, flags=re.DOTALL)
    return [line for line in "".join(result).splitlines() if line.strip()]
