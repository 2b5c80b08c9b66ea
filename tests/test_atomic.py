import os
import stat
from pathlib import Path

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
    with pytest.raises(RuntimeError), atomic.folder(tmp_path / "out", replaces={"old"}):
        raise RuntimeError
    assert (tmp_path / "out" / "old").read_text() == "x"
    assert len(list(tmp_path.iterdir())) == 1


def test_what_exists_is_replaced_only_when_told(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("x")
    with pytest.raises(ElmoreError, match="exists already"), atomic.folder(tmp_path / "out"):
        pass
    with atomic.folder(tmp_path / "out", replaces={"old", "new"}) as aside:
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


def test_what_is_somebody_elses_is_never_replaced(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "photos").mkdir()
    with (
        pytest.raises(ElmoreError, match="holds 'photos', which is not ours to replace"),
        atomic.folder(tmp_path / "home", replaces={"config.json"}),
    ):
        pass
    assert (tmp_path / "home" / "photos").is_dir()


@pytest.mark.parametrize("kind", ["file", "fifo", "link", "dangling"])
def test_what_is_no_folder_is_left_alone(tmp_path, kind):
    place = tmp_path / "out"
    if kind == "file":
        place.write_text("x")
    elif kind == "fifo":
        os.mkfifo(place)
    else:
        place.symlink_to(tmp_path if kind == "link" else tmp_path / "nowhere")
    with (
        pytest.raises(ElmoreError, match="exists and is no folder"),
        atomic.folder(place, replaces={"a"}),
    ):
        pass
    assert os.path.lexists(place)


def test_a_swap_that_fails_is_undone(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("x")
    rename = Path.rename

    def failing(self, target):
        if self.name == "new":
            raise OSError("no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="no"), atomic.folder(tmp_path / "out", replaces={"old"}):
        pass
    assert (tmp_path / "out" / "old").read_text() == "x"
    assert len(list(tmp_path.iterdir())) == 1
