"""Rows of parquet files: text that is not UTF-8, values that Python does not have."""

import pyarrow
import pytest
from pyarrow import parquet

from elmore.errors import DataError
from elmore.text.files import Lines, TableRow


def read(tmp_path, table, errors="strict", *, others=True):
    parquet.write_table(table, tmp_path / "t.parquet", row_group_size=1500)
    return list(Lines([str(tmp_path / "t.parquet")], errors=errors).rows(others=others))


def broken(size=3, bad=1):
    """Return texts `a`, one of which is a byte that is not UTF-8."""
    data = b"a" * bad + b"\xff" + b"a" * (size - bad - 1)
    ends = pyarrow.array(range(size + 1), pyarrow.int32()).buffers()[1]
    return pyarrow.StringArray.from_buffers(size, ends, pyarrow.py_buffer(data))


def test_rows_keep_their_order_and_their_other_columns_over_batches(tmp_path):
    size = 4000
    table = pyarrow.table({"id": range(size), "text": map(str, range(size)), "x": [None] * size})
    expected = [TableRow(str(number), {"id": number, "x": None}) for number in range(size)]
    assert read(tmp_path, table) == expected
    assert read(tmp_path, table, others=False) == [TableRow(row.text, {}) for row in expected]


def test_a_missing_text_is_empty_and_lists_are_tokens(tmp_path):
    texts = pyarrow.array([["a", "b"], None, []])
    assert [row.text for row in read(tmp_path, pyarrow.table({"text": texts}))] == [
        ["a", "b"],
        "",
        [],
    ]


def test_invalid_text_is_named_by_its_row_and_column(tmp_path):
    with pytest.raises(DataError, match=r"t\.parquet: row 2602 is not UTF-8 at its byte 1; fix"):
        read(tmp_path, pyarrow.table({"text": broken(3000, 2601)}))
    other = pyarrow.table({"text": ["a"] * 3, "name": broken()})
    with pytest.raises(DataError, match=r"t\.parquet: row 2, column 'name', is not UTF-8 at its"):
        read(tmp_path, other)
    assert len(read(tmp_path, other, others=False)) == 3


def test_invalid_text_is_replaced_on_request_also_in_lists_and_other_columns(tmp_path):
    lists = pyarrow.ListArray.from_arrays([0, 3], broken())
    for texts in (lists, lists.cast(pyarrow.large_list(pyarrow.string()))):
        table = pyarrow.table({"text": texts})
        assert read(tmp_path, table, "replace") == [(["a", "\ufffd", "a"], {})]
    table = pyarrow.table({"text": ["a", "b", "c"], "name": broken()})
    assert [row.others["name"] for row in read(tmp_path, table, "replace")] == ["a", "\ufffd", "a"]
    missing = pyarrow.concat_arrays([broken(), pyarrow.array([None], pyarrow.string())])
    assert read(tmp_path, pyarrow.table({"text": missing}), "replace")[3].text == ""


@pytest.mark.parametrize(
    ("errors", "advice"), [("strict", "fix it, or pass --errors replace"), ("replace", "fix it")]
)
def test_invalid_text_inside_other_structures_is_refused_with_advice_that_helps(
    tmp_path, errors, advice
):
    inside = pyarrow.StructArray.from_arrays([broken()], ["name"])
    with pytest.raises(DataError) as refused:
        read(tmp_path, pyarrow.table({"text": ["a"] * 3, "x": inside}), errors)
    where = f"{tmp_path / 't.parquet'}: row 2, column 'x',"
    assert str(refused.value) == f"{where} is not UTF-8 at its byte 1; {advice}"


def test_a_date_that_python_does_not_have_is_a_text(tmp_path):
    dates = pyarrow.array([2**60, None], pyarrow.timestamp("us"))
    rows = read(tmp_path, pyarrow.table({"text": ["a", "b"], "date": dates}))
    assert [type(row.others["date"]) for row in rows] == [str, type(None)]


def test_two_columns_of_one_name_are_refused_if_they_are_read(tmp_path):
    cells = [pyarrow.array(["a"])] * 3
    with pytest.raises(DataError, match="two columns are named 'text'; rename one of them"):
        read(tmp_path, pyarrow.table(cells, names=["text", "text", "x"]), others=False)
    twice = pyarrow.table(cells, names=["text", "x", "x"])
    with pytest.raises(DataError, match="two columns are named 'x'; rename one of them"):
        read(tmp_path, twice)
    assert read(tmp_path, twice, others=False) == [("a", {})]
