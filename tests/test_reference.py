"""docs/command-line.md and docs/recipes.md say what the code says."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
SPEC = importlib.util.spec_from_file_location("write_reference", DOCS / "write_reference.py")
assert SPEC is not None
assert SPEC.loader is not None
write_reference = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(write_reference)


@pytest.mark.parametrize("name", ["command-line.md", "recipes.md"])
def test_the_page_is_what_the_code_gives(name):
    expected = write_reference.pages()[name]
    assert (DOCS / name).read_text("utf-8") == expected, "run python docs/write_reference.py"


def test_every_option_and_key_has_a_meaning():
    page = write_reference.command_page()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 150
    assert not [row for row in rows if row.endswith("|  |")]
