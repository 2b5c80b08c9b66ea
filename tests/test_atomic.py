import contextlib
import errno
import os
import signal
import stat
import subprocess
import sys
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


def test_a_failure_leaves_no_files(tmp_path):
    with pytest.raises(ZeroDivisionError), atomic.folder(tmp_path / "out") as aside:
        (aside / "a").write_text(str(1 / 0))
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_existing_files_intact(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("x")
    with pytest.raises(RuntimeError), atomic.folder(tmp_path / "out", replaces={"old"}):
        raise RuntimeError
    assert (tmp_path / "out" / "old").read_text() == "x"
    assert len(list(tmp_path.iterdir())) == 1


def test_existing_files_are_replaced_only_with_overwrite(tmp_path):
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


def test_written_files_are_readable_by_other_users(tmp_path):
    before = os.umask(0o027)
    with atomic.folder(tmp_path / "out") as aside:
        (aside / "a").touch(mode=0o600)
    os.umask(before)
    assert mode(tmp_path / "out") == 0o750
    assert mode(tmp_path / "out" / "a") == 0o640


def test_other_programs_files_are_never_replaced(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "photos").mkdir()
    with (
        pytest.raises(ElmoreError, match="contains 'photos', which elmore did not write"),
        atomic.folder(tmp_path / "home", replaces={"config.json"}),
    ):
        pass
    assert (tmp_path / "home" / "photos").is_dir()


def test_a_folder_with_names_like_ours_is_replaced_only_where_it_is_known(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "README.md").write_text("mine")
    with (
        pytest.raises(ElmoreError, match=r"contains 'README\.md' and was not written by elmore"),
        atomic.folder(
            tmp_path / "out",
            replaces={"README.md"},
            is_ours=lambda directory: directory.name == "in",
        ),
    ):
        pass
    assert (tmp_path / "out" / "README.md").read_text() == "mine"


@pytest.mark.parametrize("kind", ["file", "fifo", "link", "dangling"])
def test_a_path_that_is_not_a_folder_is_left_alone(tmp_path, kind):
    path = tmp_path / "out"
    if kind == "file":
        path.write_text("x")
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path if kind == "link" else tmp_path / "nowhere")
    with (
        pytest.raises(ElmoreError, match="exists and is not a folder"),
        atomic.folder(path, replaces={"a"}),
    ):
        pass
    assert os.path.lexists(path)


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


WRITER = """
import sys
from pathlib import Path
from elmore import atomic
path, letter = Path(sys.argv[1]), sys.argv[2].encode()
sys.stdin.readline()
for number in range(100):
    atomic.write(path, letter * (1000 + 37 * number))
    found = path.read_bytes()
    assert len(found) >= 1000 and len(set(found)) == 1, "a torn read"
"""


def test_two_processes_write_and_read_one_name_without_a_torn_read(tmp_path):
    command = [sys.executable, "-c", WRITER, tmp_path / "file"]
    jobs = [
        subprocess.Popen([*command, letter], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for letter in "ab"
    ]
    for job in jobs:  # both are ready before either begins
        job.stdin.write(b"\n")
        job.stdin.flush()
    errors = [job.communicate()[1].decode() for job in jobs]
    assert [(job.returncode, error) for job, error in zip(jobs, errors, strict=True)] == [
        (0, ""),
        (0, ""),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_file_keeps_its_permissions_and_a_new_one_has_those_of_open(tmp_path):
    atomic.write(tmp_path / "new", b"x")
    (tmp_path / "plain").write_bytes(b"x")
    assert mode(tmp_path / "new") == mode(tmp_path / "plain")
    (tmp_path / "new").chmod(0o640)
    atomic.write(tmp_path / "new", b"y")
    assert mode(tmp_path / "new") == 0o640


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_the_umask_of_the_process_is_never_touched(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "umask", None)
    atomic.write(tmp_path / "file", b"x")
    with atomic.folder(tmp_path / "out") as aside:
        (aside / "a").touch(mode=0o600)
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "a").touch()
    assert mode(tmp_path / "out") == mode(tmp_path / "plain")
    assert mode(tmp_path / "out" / "a") == mode(tmp_path / "plain" / "a")


def test_the_file_and_its_folder_are_on_the_disk_before_a_write_returns(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda fd: (synced.append(stat.S_ISDIR(os.fstat(fd).st_mode)), fsync(fd))
    )
    atomic.write(tmp_path / "file", b"x")
    assert synced == [False, True]
    synced.clear()
    with atomic.folder(tmp_path / "out"):
        pass
    assert synced[-1] is True


KILLED = """
import os, signal, sys
from pathlib import Path
from elmore import atomic
path = Path(sys.argv[1])
{block}
"""
IN_A_FILE = "with atomic.file(path) as file:\n    file.write(b'half'); file.flush(); "
IN_A_FOLDER = (
    "with atomic.folder(path, replaces={'a'}) as new:\n    (new / 'a').write_bytes(b'half'); "
)
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
IN_A_SWAP = f"Path.rename = lambda self, to: (os.rename(self, to), {KILL})\n{IN_A_FOLDER}"


def killed(path, block):
    code = KILLED.format(block=block)
    job = subprocess.run([sys.executable, "-c", code, path], check=False)
    assert job.returncode == -signal.SIGKILL


def test_files_of_a_killed_writer_are_removed_by_the_next(tmp_path):
    atomic.write(tmp_path / "file", b"old")
    for _ in range(2):
        killed(tmp_path / "file", IN_A_FILE + KILL)
    assert (tmp_path / "file").read_bytes() == b"old"
    with atomic.file(tmp_path / "file") as other:  # one that lives
        atomic.write(tmp_path / "file", b"new")
        other.write(b"newest")
    assert (tmp_path / "file").read_bytes() == b"newest"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_of_a_killed_writer_is_removed_by_the_next(tmp_path):
    killed(tmp_path / "out", IN_A_FOLDER + KILL)
    with atomic.folder(tmp_path / "out") as other:  # one that lives
        (other / "a").write_text("x")
        atomic.remove_leftovers(tmp_path / "out")
    assert (tmp_path / "out" / "a").read_text() == "x"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_moved_away_by_a_killed_process_is_restored(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_text("old")
    killed(tmp_path / "out", IN_A_SWAP)
    assert not (tmp_path / "out").exists()
    atomic.remove_leftovers(tmp_path / "out")
    assert (tmp_path / "out" / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_is_deleted_at_once_also_by_a_process_that_is_killed(tmp_path):
    for _ in range(2):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "a").write_text("x")
        killed(
            tmp_path / "out", f"atomic.shutil.rmtree = lambda *_, **__: {KILL}; atomic.remove(path)"
        )
        assert not (tmp_path / "out").exists()
    atomic.remove_leftovers(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


class StoppedError(BaseException):
    """What nothing swallows."""


@pytest.mark.parametrize("kind", ["replace", "remove"])
@pytest.mark.parametrize("count", range(6))
def test_a_deletion_that_stops_anywhere_is_finished_by_the_next(tmp_path, monkeypatch, kind, count):
    out = tmp_path / "out"
    out.mkdir()
    for name in "ab":
        (out / name).write_text("old")
    calls = iter(range(count))

    def stopping(delete):
        def stopped(*args, **options):
            if next(calls, None) is None:
                raise StoppedError
            delete(*args, **options)

        return stopped

    with monkeypatch.context() as patch, contextlib.suppress(StoppedError):
        patch.setattr(os, "unlink", stopping(os.unlink))
        patch.setattr(os, "rmdir", stopping(os.rmdir))
        if kind == "remove":
            atomic.remove(out)
        else:
            with atomic.folder(out, replaces={"a", "b"}) as new:
                (new / "a").write_text("new")
    atomic.remove_leftovers(out)
    assert [path.name for path in tmp_path.iterdir()] == ["out"] * (kind == "replace")
    assert kind == "remove" or (out / "a").read_text() == "new"


@pytest.mark.parametrize("name", [".file.new", ".file.mine.new", "file.new", ".files.0.new"])
def test_files_with_similar_names_to_temporary_ones_are_left_alone(tmp_path, name):
    (tmp_path / name).write_text("mine")
    atomic.write(tmp_path / "file", b"x")
    with atomic.folder(tmp_path / "out"):
        pass
    assert (tmp_path / name).read_text() == "mine"


def test_a_special_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(ElmoreError, match=f"{name} exists and is not a file"):
            atomic.write(tmp_path / name, b"x")
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]


def test_a_link_stays_and_what_it_names_is_replaced(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "file")
    atomic.write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "deep" / "file").read_text() == "new"


def test_a_name_as_long_as_a_name_may_be_is_written(tmp_path):
    for letter in "aé":
        name = letter * (255 // len(letter.encode()))
        atomic.write(tmp_path / name, b"x")
        assert (tmp_path / name).read_bytes() == b"x"


def test_a_folder_that_another_made_meanwhile_is_not_replaced(tmp_path):
    with contextlib.ExitStack() as stack:
        stack.enter_context(atomic.folder(tmp_path / "out"))
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "theirs").write_text("x")
        with pytest.raises(ElmoreError, match="out exists already"):
            stack.close()
    assert (tmp_path / "out" / "theirs").read_text() == "x"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("step", ["out", "new"])
def test_two_writers_of_a_folder_are_reported_in_one_sentence(tmp_path, monkeypatch, step):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_text("old")
    rename = Path.rename

    def meanwhile(self, target):
        if self.name == step == "out":
            rename(self, tmp_path / "elsewhere")
        elif self.name == step:
            (tmp_path / "out").mkdir()
            (tmp_path / "out" / "a").write_text("theirs")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", meanwhile)
    said = "out: another process wrote it at the same time; try again"
    with pytest.raises(ElmoreError, match=said), atomic.folder(tmp_path / "out", replaces={"a"}):
        pass
    left = "elsewhere" if step == "out" else "out"
    assert [path.name for path in tmp_path.iterdir()] == [left]
    assert (tmp_path / left / "a").read_text() == ("old" if step == "out" else "theirs")


@pytest.mark.parametrize("other_disk", [False, True])
def test_a_finished_file_replaces_what_a_link_names(tmp_path, monkeypatch, other_disk):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_text("old")
    (tmp_path / "link").symlink_to(Path("deep") / "file")
    (tmp_path / "result").write_text("new")
    rename = Path.replace

    def across_disks(self, target):
        if other_disk and self.parent != target.parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", across_disks)
    atomic.replace(tmp_path / "result", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "deep" / "file").read_text() == "new"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["deep", "file", "link"]


@pytest.mark.parametrize("filename", [None, "other"])
def test_an_error_of_a_full_disk_names_what_was_written(tmp_path, filename):
    for writer, path in ((atomic.file, tmp_path / "a"), (atomic.folder, tmp_path / "b")):
        with pytest.raises(OSError, match="No space left") as failed, writer(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), filename)
        assert failed.value.filename == (filename or str(path))
    assert list(tmp_path.iterdir()) == []
