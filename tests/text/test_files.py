"""Where lines come from when not from plain files; `tests/cli` has the files themselves."""

import gzip
import os
import sys
import threading

import pytest

from elmore.errors import DataError
from elmore.text.files import Lines


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_has_no_known_length(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    os.mkfifo(tmp_path / "b")
    writer = threading.Thread(target=lambda: (tmp_path / "b").write_text("three\n"))
    writer.start()
    lines = Lines([str(tmp_path / "a.txt"), str(tmp_path / "b")])
    result = [(line, lines.fraction is None) for line in lines]
    writer.join()
    assert result == [("one", False), ("two", False), ("three", True)]


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_progress_counts_the_texts_that_are_done_however_far_it_has_read(tmp_path, ending):
    path = tmp_path / f"a.txt{ending}"
    with (gzip.open if ending else open)(path, "wt") as file:
        file.writelines(f"{number:03}\n" for number in range(500))
    lines = Lines([str(path)])
    reader = iter(lines)
    for _ in range(400):
        next(reader)
    assert lines.fraction_after(10) <= 0.02
    assert lines.fraction_after(400) <= 0.8
    list(reader)
    for done in (0, 1, 250, 499, 500):
        assert lines.fraction_after(done) == pytest.approx(done / 500, abs=0.003)


def test_a_closed_standard_input_is_reported_in_one_sentence(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(DataError, match="standard input is closed; pass a file"):
        list(Lines(["-"]))


def read(tmp_path, text, name="t.jsonl"):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(Lines([str(tmp_path / name)]).rows())


def test_empty_lines_of_a_table_are_no_rows(tmp_path):
    jsonl = '\n{"text": "a"}\n \t\r\n\n{"text": "b"}\n\n'
    assert [row.text for row in read(tmp_path, jsonl)] == ["a", "b"]
    for name, separator in (("t.csv", ","), ("t.tsv", "\t")):
        table = "id,text\r\n\r\n1,a\r\n\n2,b\n\n".replace(",", separator)
        assert [row.text for row in read(tmp_path, table, name)] == ["a", "b"]


@pytest.mark.parametrize("value", ['[["text", "a"]]', '["text"]', '"text"', "3", "null", "[]"])
def test_a_line_that_is_json_but_no_object_is_refused(tmp_path, value):
    with pytest.raises(DataError) as found:
        read(tmp_path, f'{{"text": "a"}}\n\n{value}\n')
    assert (
        str(found.value) == f"{tmp_path}/t.jsonl: line 3: expected a JSON object, found {value!r}"
    )


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"text": "b"', r"line 2 is not JSON \(Expecting ',' delimiter at its character 13\)$"),
        (
            '{"text": "b", "n": %s}' % ("1" * 5000),
            r"line 2 is not JSON \(Exceeds the limit[^;]*\)$",
        ),
        ('{"body": "b", "id": 3}', "line 2: no column 'text'; pass --column, one of body, id$"),
        ('{"text": {}}', "line 2: expected a text or a list of tokens, found '{}'"),
    ],
)
def test_a_line_that_is_no_row_is_named_with_the_reason(tmp_path, line, sentence):
    with pytest.raises(DataError, match=sentence):
        read(tmp_path, f'{{"text": "a"}}\n{line}\n')


def test_of_many_columns_the_first_are_named(tmp_path):
    with pytest.raises(DataError, match=r"one of c0, c1, .*, c19, …$"):
        read(tmp_path, ",".join(f"c{number}" for number in range(3000)), "t.csv")


def test_a_missing_text_is_empty(tmp_path):
    assert read(tmp_path, '{"text": null, "id": 1}\n') == [("", {"id": 1})]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n'),
        ("t.csv", b"text,id\n\xff,1\n"),
        ("t.tsv", b"text\tid\n\xff\t1\n"),
    ],
)
def test_a_line_of_a_table_that_is_not_utf8_is_named(tmp_path, name, text):
    with pytest.raises(DataError, match=rf"{name}: line 2 is not UTF-8 at its byte"):
        read(tmp_path, text, name)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("errors", ["strict", "replace"])
def test_utf16_is_named_instead_of_replaced(tmp_path, encoding, errors):
    (tmp_path / "t.txt").write_bytes("\ufeffa\nb\n".encode(encoding))
    with pytest.raises(DataError, match=r"t\.txt is UTF-16, expected UTF-8; .* iconv -f UTF-16"):
        list(Lines([str(tmp_path / "t.txt")], errors=errors))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('id,text\n1,a\n2,"b\n3,c\n', "line 3: a quote in this row is never closed"),
        ('id,text\n1,"a\nb"\n2,c\rd\n', "line 4 has a carriage return in a field without quotes"),
        ('id,text\n1,"a"b\n', "line 2: ',' expected after '\"'"),
    ],
)
def test_a_row_that_csv_cannot_parse_is_named_with_the_reason(tmp_path, text, sentence):
    with pytest.raises(DataError, match=rf"t\.csv: {sentence}"):
        read(tmp_path, text, "t.csv")


def test_a_tsv_is_not_told_to_quote(tmp_path):
    with pytest.raises(DataError, match=r"line 2 has a carriage return .* line feed$"):
        read(tmp_path, "id\ttext\n1\ta\rb\n", "t.tsv")


@pytest.mark.parametrize(
    ("name", "package"), [("a.parquet", "pyarrow"), ("a.txt.zst", "zstandard")]
)
def test_a_package_that_is_not_there_is_named_with_the_file(tmp_path, monkeypatch, name, package):
    (tmp_path / name).write_bytes(b"")
    monkeypatch.setitem(sys.modules, package, None)
    expected = rf"{name}: .* needs {package}: pip install 'elmore\[embed\]'"
    with pytest.raises(DataError, match=expected):
        list(Lines([str(tmp_path / name)]))
