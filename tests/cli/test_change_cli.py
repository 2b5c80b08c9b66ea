"""elmore change: a table, JSON, pictures, and a comparison that is killed."""

import json
from xml.etree import ElementTree

import pytest

from tests.support import cli_processes, toy_tasks
from tests.support.cli_processes import KillCall
from tests.support.cli_runner import run_elmore
from tests.support.own_cache import make_cache

OLD = "They sat on the bank of the river .\nThe and/or bank lent them money .\n"
NEW = "Her bank closed the account , and/or not .\nThe bank of the canal was steep .\n"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(toy_tasks.bilm(tmp_path_factory.mktemp("model") / "bilm"))


@pytest.fixture
def files(tmp_path, monkeypatch) -> tuple[str, str]:
    monkeypatch.setenv("ELMORE_CACHE", str(make_cache(tmp_path / "cache")))
    (tmp_path / "old.txt").write_text(OLD * 6)
    (tmp_path / "new.txt").write_text(NEW * 6)
    (tmp_path / "words.txt").write_text("bank\nthe\nriver\nand/or\n")
    monkeypatch.chdir(tmp_path)
    return "old.txt", "new.txt"


COMMAND = ("--words", "words.txt", "--tokenized", "--device", "cpu", "--min-uses", "6")


def test_the_command_prints_a_ranking_and_names_what_it_leaves_out(model, files):
    done = run_elmore("change", model, *files, *COMMAND)
    assert done.code == 0, done.err
    head, *rows = done.out.splitlines()
    assert head.split("\t") == ["word", "old", "new", "apd", "prt", "jsd", "p", "senses"]
    assert {row.split("\t")[0] for row in rows} == {"bank", "the", "and/or"}
    assert done.err == (
        "left out 1 of 4 words, which have fewer than 6 uses in a corpus: river (6 old, 0 new)\n"
    )


def test_senses_and_the_uses_that_moved_are_printed_on_request(model, files):
    done = run_elmore("change", model, *files, *COMMAND, "--uses", "1")
    table, bank = done.out.split("\n\n")[0], done.out.split("\nbank\n")[1].split("\n\n")[0]
    assert "moved" not in table
    assert "sense\told\tnew\ta use from its middle" in bank
    assert [line.split("\t")[1] for line in bank.split("moved\t")[1].splitlines()[1:]] == [
        "old",
        "new",
    ]
    assert "[bank]" in bank


def test_json_has_all_uses_of_a_word_in_one_line(model, files):
    done = run_elmore("change", "--model", model, *files, *COMMAND, "--json")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [set(line) >= {"apd", "prt", "jsd", "p", "senses", "uses"} for line in lines] == [
        True
    ] * 3
    (bank,) = [line for line in lines if line["word"] == "bank"]
    assert (bank["old"], bank["new"], len(bank["uses"])) == (12, 12, 24)
    assert bank["apd"]["low"] <= bank["apd"]["value"] <= bank["apd"]["high"]
    assert bank["uses"][0]["tokens"][bank["uses"][0]["position"]] == "bank"


def test_pictures_show_the_ranking_and_both_periods_of_each_word(model, files, tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "mine.txt").write_text("kept")
    done = run_elmore("change", model, *files, *COMMAND, "-o", "figures")
    assert done.code == 0, done.err
    maps = sorted(path.name for path in (tmp_path / "figures" / "maps").iterdir())
    assert maps == ["and_or.svg", "bank.svg", "the.svg"]
    page = ElementTree.fromstring((tmp_path / "figures" / "maps" / "bank.svg").read_text())
    titles = [title.text for title in page.iter(f"{SVG}title")]
    assert sum(title.startswith("old: ") for title in titles) == 12
    assert sum(title.startswith("new: ") for title in titles) == 12
    assert (tmp_path / "figures" / "ranking.svg").read_text().count('class="dot') == 3
    assert (tmp_path / "figures" / "mine.txt").read_text() == "kept"


@pytest.mark.parametrize("output", [(), ("--json",), ("--uses", "1")])
@pytest.mark.parametrize(
    ("block", "message"),
    [
        (
            lambda out: (out / "maps").write_text(""),
            "figures/maps: cannot be written (File exists); pass another folder",
        ),
        (lambda out: (out / "maps" / "bank.svg").mkdir(parents=True), "figures/maps/bank.svg: "),
    ],
)
def test_results_are_printed_even_if_they_cannot_be_drawn(
    model, files, tmp_path, output, block, message
):
    (tmp_path / "figures").mkdir()
    block(tmp_path / "figures")
    command = ("change", model, *files, *COMMAND, *output)
    failed = run_elmore(*command, "-o", "figures")
    said, sentence = failed.err.splitlines()
    assert failed.code == 1
    assert sentence.startswith(f"elmore: {message}")
    assert (0, failed.out, f"{said}\n") == run_elmore(*command)


def test_a_word_that_is_longer_than_a_file_name_has_a_map(model, files, tmp_path):
    long = "\N{CJK UNIFIED IDEOGRAPH-9280}" * 100
    for name in files:
        (tmp_path / name).write_text(f"a {long} in {name}\nthe {long}x there\n" * 6)
    (tmp_path / "words.txt").write_text(f"{long}\n{long}x\n")
    done = run_elmore("change", model, *files, *COMMAND, "-o", "figures")
    assert done.code == 0, done.err
    assert len(list((tmp_path / "figures" / "maps").iterdir())) == 2


def test_a_comparison_that_was_killed_continues_and_gives_the_same(model, files, tmp_path):
    command = ("change", model, *files, *COMMAND, "--json")
    kill = KillCall("elmore.probe.change.study:measure_word", 2)
    environment = {"ELMORE_CACHE": str(make_cache(tmp_path / "killed"))}
    (killed,) = cli_processes.run(*command, kill=kill, environment=environment)
    assert (killed.code, killed.out) == (-9, "")
    (job,) = (tmp_path / "killed" / "change").iterdir()
    assert (job / "word-00000.json").exists()
    assert not (job / "word-00001.json").exists()
    before = (job / "word-00000.json").stat().st_mtime_ns
    (resumed,) = cli_processes.run(*command, environment=environment)
    assert (job / "word-00000.json").stat().st_mtime_ns == before
    assert resumed.code == 0, resumed.err
    assert resumed.out == run_elmore(*command).out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("old.txt", "old.txt"), "in common; pass two corpora that differ"),
        (("old.txt", "gone.txt"), "gone.txt: cannot be read"),
        (("old.txt", "new.txt", "--words", "gone.txt"), "gone.txt: cannot be read"),
        (("old.txt", "new.txt", "--layer", "9"), "layers 0 to 2"),
        (("old.txt", "new.txt", "--max-uses", "3"), "max_uses of at least that"),
        (("old.txt", "new.txt", "-o", "words.txt"), "words.txt: expected a folder to write"),
    ],
)
def test_the_command_refuses_in_one_sentence(model, files, arguments, message):
    done = run_elmore("change", "--model", model, *arguments, "--device", "cpu")
    assert (done.code, done.out) == (1, "")
    assert message in done.err
    assert done.err.count("\n") == 1
