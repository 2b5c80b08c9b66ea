"""Benchmarks end with one sentence where $ELMORE_DATA, or a file in it, is not there."""

import importlib
import lzma
import re

import pytest

from tests.support.scripts import ROOT, run_script

# Scripts that read data first, with what they need, and what they read.
SCRIPTS = [
    (["change_memory.py"], "corpus/train-00.txt.xz"),
    (["embed_memory.py"], "corpus/train-00.txt.xz"),
    (["embed_tokens.py"], "corpus/valid.txt.xz"),
    (["finetune_domain.py", "{tmp}/finetuned"], "corpus/biomed-train.txt.xz"),
    (["pooling.py"], "tasks/snli/snli_dev.tsv.xz"),
    (["precision.py"], "corpus/valid.txt.xz"),
    (["prepare_scale.py"], "corpus/train-00.txt.xz"),
]


def ending(script: list[str], tmp_path) -> str:
    """Run a script that ends with a sentence, which Python prints with exit status 1."""
    name, *arguments = [word.format(tmp=tmp_path) for word in script]
    with pytest.raises(SystemExit) as raised:
        run_script(f"benchmarks/{name}", *arguments)
    assert isinstance(raised.value.code, str)
    return raised.value.code


@pytest.mark.parametrize(("script", "name"), SCRIPTS, ids=[words[0] for words, _ in SCRIPTS])
def test_a_benchmark_without_its_data_ends_with_one_sentence(script, name, monkeypatch, tmp_path):
    monkeypatch.delenv("ELMORE_DATA", raising=False)
    assert ending(script, tmp_path) == (
        f"ELMORE_DATA is not set, but should be the folder that holds {name}: "
        "set it with export ELMORE_DATA=FOLDER"
    )
    monkeypatch.setenv("ELMORE_DATA", str(tmp_path))
    assert ending(script, tmp_path) == (
        f"{tmp_path / name} is not there, but ELMORE_DATA, which is {str(tmp_path)!r}, should be "
        f"the folder that holds {name}: set it to that folder, or put the data there"
    )


def test_a_benchmark_finds_its_text_in_the_folder(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("ELMORE_DATA", str(tmp_path))
    (tmp_path / "corpus").mkdir()
    with lzma.open(tmp_path / "corpus/valid.txt.xz", "wt") as file:
        file.write("A storm came. It left.\n")
    read = importlib.import_module("contestants").real_sentences
    assert list(read()) == [["A", "storm", "came", "."], ["It", "left", "."]]


def test_a_stored_command_names_the_variable_also_where_it_ends_with_a_slash(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setenv("ELMORE_DATA", f"{tmp_path}/")
    show_command = importlib.import_module("grid").show_command
    assert show_command(["embed", f"{tmp_path}/text"]) == "elmore embed $ELMORE_DATA/text"


@pytest.mark.parametrize("name", ["paper.py", "model_quality.py"])
def test_a_script_that_prints_stored_results_shows_its_help_without_data(name, monkeypatch, capsys):
    monkeypatch.delenv("ELMORE_DATA", raising=False)
    with pytest.raises(SystemExit) as raised:
        run_script(f"benchmarks/{name}", "--help")
    assert raised.value.code == 0


def test_only_one_file_asks_the_environment_for_the_data():
    asking = re.compile(r"(environ|getenv).*ELMORE_DATA")
    scripts = sorted((ROOT / "benchmarks").rglob("*.py"))
    found = [path.name for path in scripts if asking.search(path.read_text("utf-8"))]
    assert found == ["data_folder.py"]
