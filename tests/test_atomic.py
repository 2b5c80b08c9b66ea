import os
import stat

import pytest

from elmore import atomic
from elmore.errors import ElmoreError


def test_a_folder_takes_its_name_when_it_is_complete(tmp_path):
    with atomic.folder(tmp_path / "deep" / "out") as aside:
        (aside / "a").write_text("x")
        assert not (tmp_path / "deep" / "out").exists()
    assert (tmp_path / "deep" / "out" / "a").read_text() == "x"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]


def test_a_failure_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), atomic.folder(tmp_path / "out") as aside:
        (aside / "a").write_text(str(1 / 0))
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_what_was_there(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("x")
    with pytest.raises(RuntimeError), atomic.folder(tmp_path / "out", overwrite=True):
        raise RuntimeError
    assert (tmp_path / "out" / "old").read_text() == "x"
    assert len(list(tmp_path.iterdir())) == 1


def test_what_exists_is_replaced_only_when_told(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("x")
    with pytest.raises(ElmoreError, match="exists already"), atomic.folder(tmp_path / "out"):
        pass
    with atomic.folder(tmp_path / "out", overwrite=True) as aside:
        (aside / "new").write_text("y")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["new"]
    assert len(list(tmp_path.iterdir())) == 1


def test_an_empty_folder_may_be_filled(tmp_path):
    (tmp_path / "out").mkdir()
    with atomic.folder(tmp_path / "out") as aside:
        (aside / "a").write_text("x")
    assert (tmp_path / "out" / "a").exists()


def test_what_is_written_can_be_read_by_others(tmp_path):
    os.umask(0o022)
    with atomic.folder(tmp_path / "out") as aside:
        (aside / "a").touch(mode=0o600)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) & 0o055 == 0o055
    assert stat.S_IMODE((tmp_path / "out" / "a").stat().st_mode) & 0o044 == 0o044
