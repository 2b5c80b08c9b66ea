"""The notebook for teaching runs as a script, and shows what its text says it shows."""

import re
from pathlib import Path

import pytest

from tests.support.scripts import run_script

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "examples/teach/elmo_in_an_afternoon.py"


@pytest.mark.slow
def test_the_afternoon_ends_with_a_tagger_that_knows_its_fish():
    shown = run_script("examples/teach/elmo_in_an_afternoon.py")
    right = dict(re.findall(r"^(.+): .* words, (\S+)% of fish", shown, flags=re.MULTILINE))
    assert 40 < float(right["characters alone"]) < 65
    assert float(right["the mix"]) > 95
    apart = re.findall(r"verb and noun (\S+)", shown)  # three layers of ours, three of the real
    assert apart[0] == apart[3] == "1.00"
    assert float(apart[2]) < 0.8
    assert float(apart[5]) < 0.8


def test_it_is_a_notebook_of_cells_that_tell_and_cells_that_do():
    cells = re.split(r"^# %%", SCRIPT.read_text("utf-8"), flags=re.MULTILINE)[1:]
    told = [cell for cell in cells if cell.startswith(" [markdown]")]
    assert len(told) >= 8
    for cell in told:
        lines = cell.strip().splitlines()[1:]
        assert all(line.startswith("#") for line in lines if line), cell
