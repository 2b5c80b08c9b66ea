"""Parts of an embedding job on a disk that is full."""

import numpy as np
import pytest

from elmore.embed.jobs.journal import PartWriter
from elmore.errors import DataError
from tests.support.full_disk import fill_disk, limit_files


def refusal(path):
    return (
        f"{path}: cannot be written (No space left on device); free some space and continue with "
        "--resume"
    )


@pytest.fixture
def part(tmp_path, monkeypatch):
    limit_files(monkeypatch, "part.bin", 1000)
    part = PartWriter(tmp_path / "part.bin", tmp_path / "part.json", 0)
    yield part
    part.abandon()


def test_vectors_for_which_there_is_no_space_are_refused_when_they_are_added(part, tmp_path):
    with pytest.raises(DataError) as failed:
        part.add("a", ["a"], np.ones((1, 100_000), np.float32))
    assert str(failed.value) == refusal(tmp_path / "part.bin")
    part.abandon()
    assert [path.name for path in tmp_path.iterdir()] == ["part.bin"]


def test_vectors_that_were_buffered_are_refused_when_the_part_is_closed(part, tmp_path):
    part.add("a", ["a"], np.ones((1, 500), np.float32))
    with pytest.raises(DataError) as failed:
        part.close()
    assert str(failed.value) == refusal(tmp_path / "part.bin")
    assert [path.name for path in tmp_path.iterdir()] == ["part.bin"]


def test_a_part_whose_manifest_cannot_be_written_is_refused(part, tmp_path, monkeypatch):
    part.add("a", ["a"], np.ones((1, 5), np.float32))
    fill_disk(monkeypatch)
    with pytest.raises(DataError) as failed:
        part.close()
    assert str(failed.value) == refusal(tmp_path / "part.bin")
    assert (tmp_path / "part.bin").stat().st_size == 20
