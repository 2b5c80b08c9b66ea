"""What is written is run: the Python blocks of the README and the docs, and the examples."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import LONGEST
from tests.support import doc_blocks
from tests.support.cli_runner import run_elmore
from tests.support.scripts import run_script

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    block
    for page in PAGES
    if page.parent.name not in ("migrate", "integrations")  # which need files or frameworks
    and page.name != "serve.md"  # which needs a server: tests/serve/test_openai_api.py
    for block in doc_blocks.python_blocks(page)
]


def test_the_readme_and_the_docs_show_python():
    assert len(BLOCKS) > 6


@pytest.mark.parametrize("block", BLOCKS)
def test_a_python_block_of_the_docs_runs(block):
    doc_blocks.run_block(block)


def test_every_example_is_run_by_a_test():
    tests = [Path(__file__), *(ROOT / "tests/integrations").glob("test_*.py")]
    source = "".join(path.read_text(encoding="utf-8") for path in tests)
    for path in (ROOT / "examples").glob("*.py"):
        assert f"examples/{path.name}" in source, path.name


def test_every_integration_has_a_page_that_is_run_and_listed():
    tests = (ROOT / "tests/integrations").glob("test_*.py")
    source = "".join(path.read_text(encoding="utf-8") for path in tests)
    run_by_a_test = re.findall(r'doc_blocks\.integration_blocks\("([^"]+)"\)', source)
    pages = {page.name for page in doc_blocks.INTEGRATIONS.glob("*.md")} - {"index.md"}
    assert sorted(run_by_a_test) == sorted(doc_blocks.PAGES) == sorted(pages)
    index = (doc_blocks.INTEGRATIONS / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\(([\w-]+\.md)\)", index)) == pages


def test_every_block_on_the_first_page_of_integrations_is_run():
    every = {one.id for one in doc_blocks.python_blocks(doc_blocks.INTEGRATIONS / "index.md")}
    ran = {one.id for page in doc_blocks.PAGES for one in doc_blocks.integration_blocks(page)}
    assert every <= ran
    assert len(every) > 5


def test_the_commands_of_the_readme_are_targets_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text()
    commands = re.findall(r"^make (\S+)", README, flags=re.MULTILINE)
    assert {"demo", "test"} <= set(commands)
    for command in commands:
        assert re.search(rf"^{command}:", makefile, flags=re.MULTILINE), command


def test_make_quick_names_tests_that_are_there():
    makefile = (ROOT / "Makefile").read_text()
    (listed,) = re.findall(r"^QUICK := \$\(addprefix tests/, ([^)]*)\)", makefile, re.MULTILINE)
    names = listed.replace("\\\n", " ").split()
    assert len(names) > 20
    for name in names:
        assert (ROOT / "tests" / name).exists(), name


def test_the_files_that_start_first_are_there():
    names = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(LONGEST) <= names


def test_the_picture_of_the_readme_is_what_its_script_draws(tmp_path):
    drawn = tmp_path / "again.svg"
    run_script("docs/figures/one_word.py", str(drawn))
    places = [dots(path) for path in (drawn, ROOT / "docs/figures/one_word.svg")]
    assert len(places[0]) == len(places[1])
    for there, here in zip(*places, strict=True):
        assert there == pytest.approx(here, abs=1.0)  # of a pixel: machines round differently


def dots(picture: Path) -> list[tuple[float, float]]:
    """Where the dots of a drawing are: the middle of a circle, the first corner of a shape."""
    place = r'class="dot [^>]*?(?:cx="|d="M)([\d.]+)(?:" cy="| )([\d.]+)'
    result = re.findall(place, picture.read_text(encoding="utf-8"))
    return [(float(x), float(y)) for x, y in result]


def test_scores_with_a_deviation_stand_in_the_results():
    measured = (ROOT / "docs/results.md").read_text(encoding="utf-8").splitlines()
    told = [re.findall(r"\d+\.\d ± \d+\.\d", line) for line in README.splitlines()]
    told = [scores for scores in told if scores]
    assert len(told) >= 6
    for scores in told:  # of one task, so they stand in one line there, too
        assert any(all(score in line for score in scores) for line in measured), scores


def test_the_citation_is_under_the_licence_of_the_software():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    software, model = project["license"].split(" AND ")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    (line,) = re.findall(r"^license: .*$", citation, flags=re.MULTILINE)
    assert line.startswith(f"license: {software} ")
    assert model in line


def test_every_file_of_the_tree_in_contributing_exists():
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tree = re.search(r"```text\nelmore/\n(.*?)```", contributing, flags=re.DOTALL)
    assert tree
    names = re.findall(r"^  (\S+?)/? {2,}", tree[1], flags=re.MULTILINE)
    assert len(names) > 5
    for name in names:
        assert (ROOT / "elmore" / name).exists(), name


def test_the_demo_separates_the_senses_of_a_word():
    shown = run_script("examples/two_senses.py")
    told_apart = shown.count("nearest use of each: 1 → 2, 2 → 1, 3 → 4, 4 → 3")
    assert told_apart == shown.count("nearest use of each") == 4
    assert "BANK" in run_script("examples/two_senses.py", "bank", "the bank .", "a bank of sand")


def test_similar_sentences_are_ranked_with_and_without_a_learned_pooling():
    shown = run_script("examples/text_similarity.py")
    assert "plain mean" in shown
    assert "learned pooling" in shown


def test_a_file_is_embedded_in_bulk_and_searched(monkeypatch):
    run_process, elmore_calls = subprocess.run, []

    def run(command, *args, **options):
        if command[:3] != [sys.executable, "-m", "elmore"]:  # such as `uname`, by `platform`
            return run_process(command, *args, **options)
        elmore_calls.append(command[3])
        assert run_elmore(*map(str, command[3:])).code == 0
        return None

    monkeypatch.setattr(subprocess, "run", run)  # another process would import torch again
    shown = run_script("examples/bulk_embedding.py")
    assert elmore_calls
    assert "The orchestra played in the old theatre ." in shown


def test_vectors_feed_a_classifier():
    shown = run_script("examples/scikit_learn.py").split()
    assert (shown[0], shown[7]) == ("praise", "blame")


def test_a_squad_file_is_divided_by_articles(tmp_path):
    paragraph = {"context": "Ann ran.", "qas": [{"question": "Who?"}]}
    articles = [{"title": title, "paragraphs": [paragraph] * n} for n, title in enumerate("abc", 1)]
    source, division = tmp_path / "all.json", tmp_path / "split.json"
    source.write_text(json.dumps({"version": "1.1", "data": articles}))
    division.write_text(json.dumps({"train": ["c", "a"], "test": ["b"]}))
    shown = run_script("examples/split_squad.py", str(source), str(division), str(tmp_path / "out"))
    assert shown == "train  2 articles, 4 questions\ntest  1 articles, 2 questions\n"
    result = json.loads((tmp_path / "out" / "train.json").read_text())
    assert result == {"version": "1.1", "data": [articles[2], articles[0]]}


def test_code_written_for_allennlp_runs():
    assert "(2, 3, 512)" in run_script("examples/from_allennlp.py")
