"""benchmarks/task_updates.py: that it measures real updates; its times are not tested."""

import importlib
import re
import sys

import numpy as np
import pytest

from tests.test_paper import MODULES, ROOT

SENTENCE = "Ada\tB-person\nlives\tO\nin\tO\nRome\tB-location\n\n"


@pytest.fixture
def script(monkeypatch, tmp_path):
    monkeypatch.setenv("ELMORE_DATA", str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module("task_updates")
    for name in (*MODULES, "task_updates"):
        sys.modules.pop(name, None)


def test_updates_of_a_task_are_measured(script, monkeypatch, tmp_path, capsys):
    for name in script.TASKS["ner"]["files"]:
        path = tmp_path / "tasks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(9 * SENTENCE)
    (tmp_path / "vectors").mkdir()
    np.save(tmp_path / script.GLOVE, np.ones((2, 50), np.float16))
    words = (tmp_path / script.GLOVE).name.replace("f16.npy", "words.txt")
    (tmp_path / "vectors" / words).write_text("lives\nin\n")
    settings = ["batch_size=4", "model.hidden_dim=4", "model.num_layers=1"]
    options = ["--tasks", "ner", "--words-only", "--updates", "3", "--functions", "2"]
    arguments = [*options, "--device", "cpu", "--place", str(tmp_path / "p"), "--set", *settings]
    monkeypatch.setattr(sys, "argv", ["task_updates.py", *arguments])
    script.main()
    printed = capsys.readouterr().out
    number = r"\d+\.\d"
    row = rf"\| ner \| {number} \| {number} to {number} \| {number} \| {number} \| 0\.0 \| 0 \|"
    assert re.search(f"^{row}$", printed, re.MULTILINE)
    assert "due to restriction <2>" in printed
