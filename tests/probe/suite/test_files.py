"""Which files of a folder belong to a set."""

import pytest

from elmore.errors import DataError
from elmore.probe.suite.files import find_file, find_files


def test_files_are_found_compressed_or_not(tmp_path):
    names = ["a.jsonl", "b.jsonl.gz", "c.jsonl.xz", "d.jsonl.bz2", "e.jsonl.zst"]
    for name in [*names, "f.jsonl.zip", "g.json"]:
        (tmp_path / name).touch()
    assert [path.name for path in find_files(tmp_path, "*.jsonl")] == names


@pytest.mark.parametrize("other", ["a.jsonl", "a.jsonl.xz"])
@pytest.mark.parametrize("find", [find_files, find_file])
def test_a_file_that_is_there_twice_is_refused(tmp_path, find, other):
    for name in ("a.jsonl.gz", other):
        (tmp_path / name).touch()
    with pytest.raises(DataError, match=r"expected a\.jsonl once, found a\.jsonl.* and a\.jsonl"):
        find(tmp_path, "*.jsonl")


def test_an_ambiguous_pattern_is_refused(tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).touch()
    with pytest.raises(DataError, match=r"expected one file \*\.jsonl in it, found 2"):
        find_file(tmp_path, "*.jsonl")
