"""The page and the figures of benchmarks/paper.py, from results that have gaps."""

import importlib
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks/results/paper_h200_2026-11-16.md"
MODULES = ("grid", "paper", "paper_cost", "paper_figures", "paper_found", "paper_page")


@pytest.fixture(scope="module")
def paper():
    """The script as a module; it wants to know where the data are, but reads none here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        patch.setenv("ELMORE_DATA", "/nowhere")
        yield importlib.import_module("paper")
        for name in MODULES:
            sys.modules.pop(name, None)


@pytest.fixture
def asked(paper, tmp_path):
    return paper.Asked(None, small=False, device="cpu", place=tmp_path, found={})


@pytest.fixture
def printed(paper, monkeypatch, capsys):
    """What a command of the script prints, the repository being the working folder."""

    def run(*words: str) -> str:
        monkeypatch.chdir(ROOT)
        monkeypatch.setattr(sys, "argv", ["paper.py", *words])
        paper.main()
        return capsys.readouterr().out

    return run


@pytest.fixture
def page(printed, asked, tmp_path):
    """The page of what was found so far."""

    def show(*words: str) -> str:
        path = tmp_path / "made-up.json"
        path.write_text(json.dumps(asked.found))
        return printed("page", str(path), *words)

    return show


def keep(
    asked, cell, score, *, seconds=60.0, device="cuda", curve=((10, 1.0),), layers=None, scores=None
):
    """Make up the result of a cell."""
    asked.found[cell.name] = {
        "command": f"elmore task train {cell.task} --device={device}",
        "seconds": seconds,
        "dev": score,
        "test": score,
        "scores": scores or {},
        "layers": layers or {},
        "curve": [*map(list, curve)],
    }


def row(page: str, section: str, *starts: str) -> list[str]:
    """The cells of a table's row behind those that it starts with."""
    part = page.split(f"## {section}", 1)[1].split("\n## ", 1)[0]
    (line,) = [x for x in part.splitlines() if x.startswith(f"| {' | '.join(starts)}")]
    return [cell.strip() for cell in line.strip("|").split("|")][len(starts) :]


def test_a_page_without_results_says_that_all_is_missing(page):
    shown = page()
    assert row(shown, "Table 1", "SNLI") == [*["missing"] * 4, "88.0 to 88.7", "5.8 %"]
    assert row(shown, "Figure 1", "PropBank", "GloVe + ELMo") == ["missing"] * 4
    assert row(shown, "Figure 2", "SST-5") == ["missing", "", "", "", ""]
    assert row(shown, "GloVe alone", "SQuAD") == ["missing"] * 4
    assert row(shown, "Cost", "all") == ["0", "0.00", "0.00", "0.00"]


def test_seeds_that_lack_are_counted(asked, page):
    for seed, score in enumerate((50.0, 60.0)):
        keep(asked, asked.cell("snli", "glove", seed=seed), score)
    for seed in range(3):
        keep(asked, asked.cell("snli", "glove+elmo", seed=seed), 77.5)
    shown = row(page(), "Table 1", "SNLI")
    # the deviation of two numbers is their distance over the root of two
    assert shown[:4] == ["missing", "55.0 ± 7.1 (2 of 3 seeds)", "77.5 ± 0.0", "50.0 %"]


def test_other_scores_of_the_same_runs_have_rows_of_their_own(asked, page):
    for seed, number in enumerate((10.0, 20.0)):
        scores = {"muc": number, "b3": 5.0, "ceafe": 0.0}
        keep(asked, asked.cell("coref", "glove", seed=seed), 50.0, scores=scores)
    shown = page()
    assert row(shown, "Other scores", "OntoGUM, MUC") == [
        "missing",
        "15.0 ± 7.1 (2 of 3 seeds)",
        "missing",
    ]
    assert row(shown, "Other scores", "SQuAD, exact match") == ["missing"] * 3


def test_runs_on_fractions_of_the_data_have_their_own_settings(asked, page):
    keep(asked, asked.fraction("srl", "glove", 0.01, 0), 18.0)
    keep(asked, asked.fraction("srl", "glove", 1.0, 0), 59.0)
    result = row(page(), "Figure 1", "PropBank", "GloVe |")
    assert result == ["missing", "18.0 (1 of 3 seeds)", "missing", "59.0 (1 of 3 seeds)"]


def test_a_longer_baseline_stands_beside_the_shorter_one(paper, asked, page):
    (cell,) = [cell for cell in paper.longer(asked) if cell.task == "srl" and cell.seed == 1]
    keep(asked, cell, 60.0)
    keep(asked, asked.cell("srl", "glove", seed=1), 50.0)
    keep(asked, asked.cell("srl", "glove+elmo", seed=1), 80.0)
    short, long, elmo, fewer = row(page(), "GloVe alone", "PropBank")
    assert [score.split()[0] for score in (short, long, elmo)] == ["50.0", "60.0", "80.0"]
    assert fewer == "50.0 %"


def test_the_baseline_is_passed_where_the_score_is_higher_first(asked, page):
    keep(asked, asked.cell("snli", "glove"), 70.0, curve=((100, 60.0), (400, 70.0)))
    keep(asked, asked.cell("snli", "glove+elmo"), 80.0, curve=((100, 70.0), (200, 71.0)))
    keep(asked, asked.cell("srl", "glove"), 70.0, curve=((100, 70.0),))
    keep(asked, asked.cell("srl", "glove+elmo"), 60.0, curve=((100, 60.0),))
    shown = page()
    assert row(shown, "Updates", "SNLI")[2:] == ["200 (1 of 3 seeds)", "50 %"]
    assert row(shown, "Updates", "PropBank")[2:] == ["never, in 1 of 1", ""]


def test_runs_that_share_a_gpu_share_its_hours_and_those_of_a_cpu_do_not(asked, page):
    keep(asked, asked.cell("snli", "glove"), 70.0, seconds=3600.0, curve=((7200, 70.0),))
    keep(asked, asked.cell("snli", "glove+elmo"), 80.0, seconds=1800.0, device="cpu")
    shown = page("--at-once", "4")
    assert row(shown, "Cost", "all") == ["2", "1.50", "0.25", "0.50"]
    assert row(shown, "Cost", "table1") == ["2 of 63", "1.50", "0.25", "0.50"]
    assert row(shown, "Cost", "table5")[0] == "0 of 1"
    assert row(shown, "Cost", "SNLI", "GloVe |")[-1] == "500"  # ms: an hour over 7,200 updates


def test_a_fine_tuned_model_is_shown_with_every_setting_it_was_run_with(asked, page):
    other = asked.trials("ner", "glove+elmo")[1][0]  # the first is taken where none was run
    keep(asked, other._replace(vectors="glove+elmo:ner"), 40.0)
    shown = page()
    assert row(shown, "A biLM", "WNUT-17 | missing |  | missing | missing")[-1] == "best on dev"
    assert "40.0 (1 of 3 seeds) | model.dropout=0.5 |" in shown


def test_figures_are_drawn_of_what_is_there_and_are_the_same_twice(asked, printed, tmp_path):
    pytest.importorskip("matplotlib")
    mix = {"input": {"shares": [0.2, 0.5, 0.3], "gamma": 1.0}}
    for vectors in ("glove", "glove+elmo"):
        layers = mix if "elmo" in vectors else None
        keep(asked, asked.cell("snli", vectors), 80.0, layers=layers)
        keep(asked, asked.fraction("snli", vectors, 0.1, 0), 70.0)
    drawn = []
    for name, result in {"some": asked.found, "again": asked.found, "none": {}}.items():
        results = tmp_path / f"{name}.json"
        results.write_text(json.dumps(result))
        printed("figures", str(results), str(tmp_path / name))
        drawn.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
    some, again, none = drawn
    assert set(some) == {"paper_table1.svg", "paper_figure1.svg", "paper_figure2.svg"}
    assert some == again
    assert all(some[name] != none[name] for name in some)


def test_the_figures_of_the_docs_are_drawn_from_the_kept_results(printed, tmp_path):
    pytest.importorskip("matplotlib", reason="pip install 'elmore[viz]' has matplotlib")
    printed("figures", str(RESULTS.with_suffix(".json")), str(tmp_path))
    drawn = sorted(tmp_path.iterdir())
    assert len(drawn) == 3
    for path in drawn:
        kept = coordinates(ROOT / "docs/figures" / path.name)
        assert coordinates(path) == pytest.approx(kept, abs=0.5), path.name


def coordinates(picture: Path) -> list[float]:
    """All places in a drawing; machines round differently."""
    return [float(result) for result in re.findall(r"-?\d+\.\d+", picture.read_text("utf-8"))]


def test_figures_need_a_folder(printed, tmp_path, capsys):
    with pytest.raises(SystemExit):
        printed("figures", str(tmp_path / "none.json"))
    assert "say the folder" in capsys.readouterr().err


def test_the_results_that_are_kept_are_what_their_command_prints(printed):
    kept = RESULTS.read_text("utf-8")
    command = re.search(r"Printed by `python benchmarks/paper.py (.+)`", kept)
    assert command is not None
    assert printed(*shlex.split(command[1])) == kept, "print the page anew"


def test_no_row_of_the_readers_page_differs_from_the_results():
    text = (ROOT / "docs/results.md").read_text("utf-8")
    section = text.split("## The paper's tables and figures", 1)[1].split("\n## ", 1)[0]
    tables, layers, rest = re.split(r"^### (?=Tables 5 and 6|Cost)", section, flags=re.MULTILINE)
    assert layers.startswith("Tables 5")  # from other results
    rows = re.findall(r"^\|.+\|$", tables + rest, flags=re.MULTILINE)
    kept = set(RESULTS.read_text("utf-8").splitlines())
    assert len(rows) > 40
    assert [line for line in rows if line not in kept] == []
