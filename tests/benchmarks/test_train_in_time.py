"""benchmarks/train_in_time.py: what it waits for, counts and writes; the training is pretrain's."""

import hashlib
import importlib
import subprocess
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.scripts import ROOT


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("train_in_time")


def make_job(script, folder, *, seconds):
    text, out = folder / "text", folder / "out"
    text.mkdir()
    out.mkdir()
    until = time.time() + seconds
    return script.Job("tiny", text, out, folder / "valid.txt", [], until, "cpu", None, None)


def write_sums(job, **contents):
    lines = [f"{hashlib.sha256(c.encode()).hexdigest()}  {name}\n" for name, c in contents.items()]
    (job.text / "SHA256SUMS").write_text("".join(lines))


def test_files_are_complete_when_their_digests_are_those_of_the_list(script, tmp_path):
    job = make_job(script, tmp_path, seconds=60)
    write_sums(job, a="all of a", b="all of b")
    (job.text / "a").write_text("all of a")
    (job.text / "b").write_text("all")
    found = []
    waiting = threading.Thread(target=lambda: found.append(script.wait_for_text(job)))
    waiting.start()
    waiting.join(3 * script.POLL)
    assert not found
    (job.text / "b").write_text("all of b")
    waiting.join()
    assert found == [[job.text / "a", job.text / "b"]]


def test_text_that_does_not_arrive_is_counted(script, tmp_path):
    job = make_job(script, tmp_path, seconds=-1)
    write_sums(job, a="a", b="b")
    (job.text / "a").write_text("a")
    with pytest.raises(TimeoutError, match=r"1 of 2 files in .*SHA256SUMS arrived"):
        script.wait_for_text(job)


@given(st.floats(0, 2000), st.floats(0.001, 1), st.floats(0, 20), st.sampled_from([0, 1, 50, 5000]))
def test_the_counted_updates_fit_with_their_evaluations(
    script, seconds, per_update, evaluation, every
):
    count = script.count_updates(seconds, per_update, evaluation, every)
    evaluations = 1 + (count // every if every else 0)
    assert count == 0 or count * per_update + evaluations * evaluation <= seconds + 1e-6
    more = count + 2  # one that is rounded off, one too many
    assert more * (per_update + (evaluation / every if every else 0)) + evaluation > seconds


def test_the_pieces_of_a_folder_are_the_folder(script, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_bytes(hashlib.shake_256(b"").digest(5000))
    (model / "card").write_text("a card")
    pieces = tmp_path / "pieces"
    count = script.split_folder(model, pieces, 1000)
    assert count == len(list(pieces.glob("model.tar.gz.*"))) > 5
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=pieces, check=True)
    home = tmp_path / "home"
    home.mkdir()
    subprocess.run("cat ../pieces/model.tar.gz.* | tar xz", shell=True, cwd=home, check=True)
    for name in ("weights", "card"):
        assert (home / "model" / name).read_bytes() == (model / name).read_bytes()


def test_a_training_that_cannot_begin_says_why(script, tmp_path):
    job = make_job(script, tmp_path, seconds=60)
    with pytest.raises(RuntimeError, match=r"exit 1; see .*train\.txt"):
        script.train(job, measured=3, evaluation=1, reserve=1)
    assert "no index.json" in (job.out / "train.txt").read_text()
    assert "elmore pretrain tiny" in (job.out / "log.txt").read_text()
