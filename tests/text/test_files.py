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


@pytest.mark.parametrize(
    ("name", "package"), [("a.parquet", "pyarrow"), ("a.txt.zst", "zstandard")]
)
def test_a_package_that_is_not_there_is_named_with_the_file(tmp_path, monkeypatch, name, package):
    (tmp_path / name).write_bytes(b"")
    monkeypatch.setitem(sys.modules, package, None)
    expected = rf"{name}: .* needs {package}: pip install 'elmore\[embed\]'"
    with pytest.raises(DataError, match=expected):
        list(Lines([str(tmp_path / name)]))
