import os
import signal
import socket
import subprocess
import sys

import pytest

from elmore import lock
from elmore.errors import DataError

HELD = """
import os, sys
from pathlib import Path
from elmore import lock
held = lock.acquire(Path(sys.argv[1]))
print(os.getpid(), flush=True)
sys.stdin.readline()
{end}
"""


def other(path, end="held.release()"):
    """Another process that holds a lock until it gets a line."""
    code = HELD.format(end=end)
    job = subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert int(job.stdout.readline()) == job.pid
    return job


def test_a_second_process_is_refused_and_the_owner_is_named(tmp_path):
    job = other(tmp_path / "deep" / "lock")
    since = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    sentence = (
        f"deep: process {job.pid} on {socket.gethostname()} has been working there since {since}; "
        "wait until it is done, or pass another name"
    )
    for _ in range(2):  # who is refused does not take the holder's name away
        with pytest.raises(DataError, match=sentence):
            lock.acquire(tmp_path / "deep" / "lock")
    job.communicate(b"\n")
    with lock.acquire(tmp_path / "deep" / "lock"):
        pass
    assert list((tmp_path / "deep").iterdir()) == []


def test_the_lock_of_a_process_that_was_killed_blocks_nobody(tmp_path):
    job = other(tmp_path / "lock")
    job.send_signal(signal.SIGKILL)
    job.communicate()
    assert lock.is_lock(tmp_path / "lock")
    with lock.acquire(tmp_path / "lock"):
        assert lock.holder(tmp_path / "lock").pid == os.getpid()
    assert not (tmp_path / "lock").exists()


def test_a_waiting_process_gets_the_lock_in_turn(tmp_path, caplog):
    job = other(tmp_path / "lock")
    code = (
        "import sys; from pathlib import Path; from elmore import lock\n"
        "with lock.acquire(Path(sys.argv[1]), wait=True): print('mine', flush=True)"
    )
    waiting = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "lock"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert f"process {job.pid} on " in waiting.stderr.readline().decode()
    job.communicate(b"\n")
    out, err = waiting.communicate()
    assert (waiting.returncode, out, err) == (0, b"mine\n", b"")


def test_a_fork_leaves_the_lock_of_its_parent_alone(tmp_path):
    end = (
        "held.release() if os.fork() == 0 else (os.wait(), print(lock.is_lock(Path(sys.argv[1]))))"
    )
    job = other(tmp_path / "lock", end)
    assert job.communicate(b"\n")[0] == b"True\n"


def test_two_in_one_process_exclude_each_other(tmp_path):
    with (
        lock.acquire(tmp_path / "lock"),
        pytest.raises(DataError, match=f"process {os.getpid()} on"),
    ):
        lock.acquire(tmp_path / "lock")


def test_a_lock_that_nothing_refers_to_is_released(tmp_path):
    lock.acquire(tmp_path / "lock")
    assert not (tmp_path / "lock").exists()


def test_a_lock_goes_with_its_folder_and_another_may_begin_there(tmp_path):
    first = lock.acquire(tmp_path / "job" / "lock")
    (tmp_path / "job").rename(tmp_path / "gone")
    with lock.acquire(tmp_path / "job" / "lock"):
        first.release()
        assert (tmp_path / "job" / "lock").exists()


@pytest.mark.parametrize(
    "text", ["dear", ' {"pid": "x"}', " [1]", " {}", " 1", "é" * 2000, " " + "[" * 2000]
)
def test_another_programs_file_is_not_used_as_a_lock(tmp_path, text):
    (tmp_path / "lock").write_text(text)
    assert not lock.is_lock(tmp_path / "lock")
    with pytest.raises(DataError, match="not a lock file of elmore; move it away"):
        lock.acquire(tmp_path / "lock")
    assert (tmp_path / "lock").read_text() == text


@pytest.mark.parametrize("kind", ["folder", "link", "dangling", "loop"])
def test_a_path_that_is_not_a_file_is_not_used_as_a_lock(tmp_path, kind):
    path = tmp_path / "lock"
    if kind == "folder":
        path.mkdir()
    else:
        (tmp_path / "link").touch()
        path.symlink_to({"loop": "lock"}.get(kind, kind))
    with pytest.raises(DataError, match="lock: not a lock file of elmore; move it away"):
        lock.acquire(path)
    assert not (tmp_path / "dangling").exists()


def test_a_child_that_still_holds_the_lock_of_an_ended_process_is_named(tmp_path):
    job = other(tmp_path / "lock", "if os.fork(): os._exit(0)\nsys.stdin.readline()")
    job.stdin.write(b"\n")
    job.stdin.flush()
    job.wait()
    said = f"process {job.pid} has ended, but a process it started still holds the lock; wait"
    with pytest.raises(DataError, match=said):
        lock.acquire(tmp_path / "lock")
    job.communicate()  # the child ends when its input does
    with lock.acquire(tmp_path / "lock"):
        pass


def test_without_working_locks_there_is_only_a_warning(tmp_path, monkeypatch, caplog):
    def failing(*_, **__):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(lock, "lock_descriptor", failing)
    with lock.acquire(tmp_path / "lock"):
        pass
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert "locks do not work there (Function not implemented), so a second process" in caplog.text
