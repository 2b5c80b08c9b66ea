"""Tables of experimenters."""

import gzip

import pytest

from elmore.errors import DataError
from elmore.text.csv_table import is_table, read_table


def read(path, text):
    path.write_text(text, encoding="utf-8")
    return read_table(str(path))


def test_cells_keep_their_commas_quotes_and_line_breaks(tmp_path):
    table = read(tmp_path / "t.csv", '\ufeffword,rt\r\n"a, ""b""\nc",\r\n\r\nd,2\r\n')
    assert table.columns == ["word", "rt"]
    assert table.rows == [['a, "b"\nc', ""], ["d", "2"]]


def test_a_tsv_may_be_compressed(tmp_path):
    (tmp_path / "t.tsv.gz").write_bytes(gzip.compress(b"word\trt\na,b\t1\n"))
    assert is_table("t.tsv.gz")
    assert not is_table("t.txt.gz")
    table = read_table(str(tmp_path / "t.tsv.gz"))
    assert (table.rows, table.delimiter) == ([["a,b", "1"]], "\t")


def test_a_tsv_has_no_quotes(tmp_path):
    table = read(tmp_path / "t.tsv", 'word\trt\n"Hello\t1\nworld."\t2\n')
    assert table.rows == [['"Hello', "1"], ['world."', "2"]]


def test_a_cell_may_be_a_whole_document(tmp_path):
    document = "word " * 40_000
    assert read(tmp_path / "t.csv", f"text,id\n{document},1\n").column("text") == [document]


def test_an_empty_line_is_an_empty_cell_where_there_is_one_column(tmp_path):
    assert read(tmp_path / "t.csv", "word\na\n\nb\n").column("word") == ["a", "", "b"]


def test_the_quoted_name_of_one_column_may_have_semicolons(tmp_path):
    assert read(tmp_path / "t.csv", '"word; form"\na\n').column("word; form") == ["a"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no header"),
        ("a,b\n1,2\n1\n", "line 3 has 1 fields, the header has 2"),
        ("a,b,a\n", "names 'a' twice"),
        ('a,b\n1,"2\n', "line 2: a quote in this row is never closed"),
        ("a;b\n1,5;2\n", "line 1 has semicolons between its fields, expected commas; save"),
        ("a\tb\n1,5\t2\n", "line 1 has tabs between its fields, expected commas; name the"),
    ],
)
def test_what_is_no_table_is_named(tmp_path, text, sentence):
    with pytest.raises(DataError, match=sentence):
        read(tmp_path / "t.csv", text)


def test_a_column_that_is_missing_is_named_with_those_that_are_there(tmp_path):
    table = read(tmp_path / "t.csv", "story,rt\n1,2\n")
    with pytest.raises(DataError, match="no column 'word', the table has story, rt"):
        table.column("word")
