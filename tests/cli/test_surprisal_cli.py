"""elmore surprisal: tables in and out, and ways to go wrong."""

import csv
import io
import json

import pytest

from elmore.weights import folder
from tests.support import toy_corpus
from tests.support.cli_runner import run_elmore

TABLE = 'story,word,rt\n1,Two,310\n1,"ships,",295\n1,come.,301\n'


@pytest.fixture(scope="module")
def model(corpus, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("model") / "toy"
    folder.save(toy_corpus.training(corpus).bundle({}), path)
    return str(path)


def run(*arguments):
    return run_elmore("surprisal", *arguments, "--device", "cpu")


def test_a_table_keeps_its_columns_and_rows(model, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(TABLE)
    result = run(model, str(path), "--column", "word", "--by", "story")
    assert (result.code, result.err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(result.out)))
    given = list(csv.DictReader(io.StringIO(TABLE)))
    assert [{name: row[name] for name in given[0]} for row in rows] == given
    assert [(row["start"], row["end"], row["length"]) for row in rows] == [
        ("0", "3", "3"), ("4", "10", "5"), ("11", "16", "4")
    ]  # fmt: skip
    assert rows[0]["forward_1"] == ""
    assert rows[2]["forward_2"] == rows[0]["forward"]


def test_a_line_is_a_text_and_json_has_the_same_numbers(model, tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("Two ships come. A storm waits.\n\nthe bank\n")
    command = (model, str(path), "--context", "text", "--spillover", "0")
    rows = list(csv.DictReader(io.StringIO(run(*command).out)))
    objects = [json.loads(line) for line in run(*command, "--json").out.splitlines()]
    assert [(row["line"], row["word"]) for row in objects[5:]] == [
        (0, "waits."), (2, "the"), (2, "bank")
    ]  # fmt: skip
    rounded = [
        {name: str(round(value, 4) if isinstance(value, float) else value) for name, value in each}
        for each in map(dict.items, objects)
    ]
    assert rounded == rows
    assert any(row["forward"] != round(row["forward"], 4) for row in objects)  # JSON has all digits


def test_a_tsv_stays_a_tsv(model, tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text("text\ttrial\ntwo, ships\t1\n")
    header, first, _ = run(model, str(path)).out.splitlines()
    assert header.startswith("text\ttrial\tword\tstart")
    assert first.startswith("two, ships\t1\ttwo,\t0\t")


def test_words_of_a_tsv_may_have_quotes(model, tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text('story\tword\n1\t"Two\n1\tships."\n')
    _, *rows = run(model, str(path), "--column", "word", "--by", "story").out.splitlines()
    assert [row.split("\t")[:2] for row in rows] == [["1", '"Two'], ["1", 'ships."']]


def test_a_table_without_rows_gives_a_table_without_rows(model, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(TABLE.splitlines()[0] + "\n")
    command = ("--column", "word", "--by", "story")
    result = run(model, str(path), *command)
    path.write_text(TABLE)
    header, *_ = run(model, str(path), *command).out.splitlines(keepends=True)
    assert (result.code, result.out) == (0, header)


def test_the_model_is_the_bundled_one_by_default(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("text\n")
    assert run(str(path)).out == run("english", str(path)).out == run(
        str(path), "--model", "english"
    ).out  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "no column 'text', the table has story, word, rt"),
        (("--column", "word", "--by", "item"), "no column 'item', the table has story, word, rt"),
        (("--column", "word"), "a column 'word' already"),
        (("--context", "0"), "found '0'"),
        (("{path}",), "a table must be the only file"),
        (("--prefix", "a\tb"), r"--prefix 'a\tb': expected printable characters"),
    ],
)
def test_bad_input_is_one_sentence(model, tmp_path, arguments, sentence):
    path = tmp_path / "t.csv"
    path.write_text(TABLE)
    result = run(model, str(path), *(part.format(path=path) for part in arguments))
    assert (result.code, result.out) == (1, "")
    assert sentence in result.err


def test_texts_are_not_grouped(model, tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("two ships\n")
    assert "--by needs a .csv or .tsv table" in run(model, str(path), "--by", "story").err


@pytest.mark.parametrize("format", ["csv", "tsv"])
def test_a_table_may_come_from_stdin(model, tmp_path, monkeypatch, format):
    text = (
        TABLE
        if format == "csv"
        else TABLE.replace('"', "").replace("ships,", "ships").replace(",", "\t")
    )
    path = tmp_path / f"t.{format}"
    path.write_text(text)
    command = ("--column", "word", "--by", "story")
    expected = run(model, str(path), *command)
    assert expected.code == 0
    for source in ("-", str(path.rename(tmp_path / "table.txt"))):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert run(model, source, *command, "--format", format).out == expected.out
