"""elmore prepare: what it prints, and every way to go wrong."""

import io
import json
import os
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pyarrow
import pyarrow.parquet
import pytest

from elmore.corpus import blocks, journal
from elmore.corpus.shards import open_corpus
from tests.support import cli_processes
from tests.support.cli_processes import ROOT
from tests.support.cli_runner import run_elmore

TEXT = "The bank closed. It rained.\n\nIt's a fine day, isn't it?\n"


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return str(path)


def prepare(*arguments):
    return run_elmore("prepare", *map(str, arguments))


def refused(*arguments) -> str:
    """The one sentence of a refusal."""
    result = prepare(*arguments)
    assert result.code == 1, result
    assert result.out == ""
    assert result.err.startswith("elmore: ")
    assert result.err.count("\n") == 1
    return result.err


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_table_says_what_was_prepared(tmp_path, text):
    result = prepare(text, "-o", tmp_path / "out", "--vocabulary-size", 3)
    assert (result.code, result.err) == (0, "")
    head, row = (line.split("\t") for line in result.out.splitlines())
    assert head == ["split", "words", "sentences", "unknown words", "word types", "vocabulary"]
    # The bank closed . | It rained . | It 's a fine day , is n't it ?: "." and "It" twice
    assert row == ["train", "17", "3", "70.59 %", "17", "6"]
    assert prepare(text, "-o", tmp_path / "two", "--json").code == 0


def test_json_gives_the_same_numbers(tmp_path, text):
    rows = json.loads(prepare(text, "-o", tmp_path / "out", "--json").out)
    assert [(row["split"], row["words"], row["sentences"]) for row in rows] == [("train", 17, 3)]


def test_a_vocabulary_larger_than_the_text_is_all_its_words(tmp_path, text):
    result = prepare(text, "-o", tmp_path / "out", "--vocabulary-size", 100)
    assert result.code == 0
    assert result.err == (
        "elmore: fewer than 100 words are frequent enough: the vocabulary contains all of them\n"
    )
    assert len(open_corpus(tmp_path / "out").vocabulary) == 15 + 3


def test_validation_text_has_a_row_of_its_own(tmp_path, text):
    (tmp_path / "valid.txt").write_text("A new day.\n")
    result = prepare(text, "-o", tmp_path / "out", "--valid", tmp_path / "valid.txt", "--json")
    assert [row["split"] for row in json.loads(result.out)] == ["train", "valid"]
    assert json.loads(result.out)[1]["unknown words"] == "50.00 %"


def test_text_comes_from_a_pipe(tmp_path):
    stdin = io.TextIOWrapper(io.BytesIO(TEXT.encode()))
    with mock.patch.object(sys, "stdin", stdin):
        assert prepare("-", "-o", tmp_path / "out", "--workers", 1).code == 0
    assert open_corpus(tmp_path / "out").split("train").num_words == 17
    assert open_corpus(tmp_path / "out").index["provenance"]["inputs"] == [["-", None]]


def test_check_reports_suspicious_text_and_writes_nothing(tmp_path, text):
    before = sorted(tmp_path.iterdir())
    Path(text).write_text(TEXT + "<br> <S>\n")
    shown = prepare(text, "--check")
    assert shown.code == 0
    lines = dict(line.split("\t", 1) for line in shown.out.splitlines())
    assert "! remove it" in lines["markup"]
    assert lines["not UTF-8"] == "none\t"
    rows = json.loads(prepare(text, "--check", "--json", "-o", tmp_path / "out").out)
    odd = [row["what"] for row in rows if row["suspicious"]]
    assert odd == ["markup", "marks as words"]
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], "pass the folder to write with -o, or --check"),
        (["-o", "out", "--workers", "0"], "--workers must be at least 1, found 0"),
        (["-o", "out", "--valid-fraction", "2"], "valid_fraction must be at least 0 and below 1"),
        (["-o", "out", "--vocabulary-size", "0"], "vocabulary_size must be at least 1"),
        (["-o", "out", "--min-count", "9"], "no word occurs 9 times or more"),
        (["-o", "out", "--vocabulary", "v", "--min-count", "2"], "cannot be combined with"),
        (["-o", "out", "--vocabulary", "v.txt"], "v.txt: not a readable vocabulary"),
        (["-o", "out", "--tokenized", "--hard-wrapped"], "cannot be hard-wrapped"),
        (["-o", "out", "--valid", "absent.txt"], "absent.txt: cannot be read"),
        (["-o", "."], "is not a valid name for a new folder"),
    ],
)
def test_invalid_options_are_refused(tmp_path, text, monkeypatch, arguments, found):
    monkeypatch.chdir(tmp_path)
    assert found in refused(text, *arguments)
    assert not (tmp_path / "out").exists()


def test_no_text_at_all_is_a_matter_of_usage():
    assert prepare("-o", "out").code == 2


@pytest.mark.parametrize(
    ("name", "data", "found"),
    [
        ("a.txt", b"", "a.txt: contains no word; expected text to prepare"),
        ("a.txt", "één\nzoë\n".encode("latin-1"), "line 1 is not UTF-8 at its byte 1 (b'\\xe9')"),
        ("a.txt", "The\n".encode("utf-16"), "a.txt is UTF-16, expected UTF-8; convert it"),
        ("a.txt.gz", b"no gzip", "a.txt.gz: damaged or truncated"),
        ("a.jsonl", b'{"body": "x"}\n', "line 1: no column 'text'; pass --column, one of body"),
        ("a.parquet", b"no parquet", "a.parquet: not a readable parquet file"),
    ],
)
def test_unreadable_text_is_reported_in_one_sentence_and_leaves_no_files(
    tmp_path, name, data, found
):
    (tmp_path / name).write_bytes(data)
    assert found in refused(tmp_path / name, "-o", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_invalid_utf_8_may_be_replaced(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"na\xefve\n")
    assert (
        prepare(
            tmp_path / "a.txt", "-o", tmp_path / "out", "--errors", "replace", "--tokenized"
        ).code
        == 0
    )
    assert open_corpus(tmp_path / "out").types[2] == "na\ufffdve"


def test_a_table_without_the_column_names_those_it_has(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"id": [1], "body": ["x"]}), tmp_path / "a.parquet")
    sentence = refused(tmp_path / "a.parquet", "-o", tmp_path / "out")
    assert "no column 'text'; pass --column, one of id, body" in sentence


def test_one_file_among_many_that_is_missing_is_named_before_work_begins(tmp_path, text):
    sentence = refused(text, tmp_path / "absent.txt", text, "-o", tmp_path / "out")
    assert "absent.txt: cannot be read (No such file or directory)" in sentence
    assert "expected a text file, found a folder" in refused(text, tmp_path, "-o", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_ctrl_c_prints_one_line_and_the_job_can_be_resumed(tmp_path, text):
    make = journal.write_part

    def stopping(*arguments):
        make(*arguments)
        raise KeyboardInterrupt

    with mock.patch("elmore.corpus.prepare.write_part", stopping):
        result = prepare(text, "-o", tmp_path / "out", "--workers", 1)
    assert (result.code, result.out) == (130, "")
    assert result.err == "elmore: stopped; continue with the same command and --resume\n"
    assert "an unfinished job; pass --resume" in refused(text, "-o", tmp_path / "out")
    assert prepare(text, "-o", tmp_path / "out", "--resume").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "text.txt"]


def test_two_processes_do_not_share_a_job(tmp_path, text):
    import fcntl

    (tmp_path / "out.parts").mkdir()
    with (tmp_path / "out.parts" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another process is working there" in refused(
            text, "-o", tmp_path / "out", "--resume"
        )


def long_text(path: Path, num_lines: int) -> None:
    chance = random.Random(0)
    words = [f"w{i}" for i in range(500)]
    with path.open("w") as file:
        for _ in range(num_lines):
            file.write(" ".join(chance.choices(words, k=chance.randrange(30))) + "\n")


CODE = """
import elmore.cli
from elmore.corpus import blocks, merge, workers, writer
from tests.support.cli_processes import stop_at
blocks.MAX_CHARACTERS, merge.SHARD_TOKENS = 20_000, 20_000
{stop}
elmore.cli.main()
"""


def command(path: Path, out: Path, *more: str, stop: str = "") -> list[str]:
    words = [sys.executable, "-c", CODE.format(stop=stop), "prepare", str(path), "-o", str(out)]
    return [*words, "--tokenized", *more]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_kills_lose_no_line_change_no_vector_and_leave_no_process(tmp_path):
    """Real processes, killed with SIGKILL here and there in their work, and resumed."""
    path, out, whole = tmp_path / "text.txt", tmp_path / "out", tmp_path / "whole"
    long_text(path, 15_000)
    once = command(path, whole, "--workers", "1", "--valid-fraction", "0.1")
    subprocess.run(once, cwd=ROOT, check=True, capture_output=True)
    assert len(list(whole.glob("train-*.tokens.npy"))) > 5
    chance = random.Random(1)
    resumed = ["--workers", "2", "--valid-fraction", "0.1", "--resume"]
    for kill in range(3):
        stop = f"stop_at(workers._WorkerPool, 'submit', {chance.randrange(3, 14)})"
        if kill == 2:  # at last while it is merged, in the middle of a file
            stop = "stop_at(writer._HashingFile, 'write', 24)"
        crew = cli_processes.kill_when_stopped(command(path, out, *resumed, stop=stop))
        assert len(crew) > 2 or kill == 2  # with who cleans up after them
        deadline = time.monotonic() + 200
        while any(map(cli_processes.is_running, crew)):
            assert time.monotonic() < deadline, "a worker outlived its run"
            time.sleep(0.01)
    subprocess.run(command(path, out, *resumed), cwd=ROOT, check=True, capture_output=True)
    assert contents(out) == contents(whole)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "text.txt", "whole"]


def test_a_write_that_hits_a_limit_is_reported_and_the_job_can_be_resumed(tmp_path):
    """No file may grow beyond 60 kB: what a full disk does, for any user."""
    path, out = tmp_path / "text.txt", tmp_path / "out"
    long_text(path, 3000)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    tight = {"cwd": ROOT, "preexec_fn": limited}
    done = subprocess.run(
        command(path, out, "--workers", "2"), **tight, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "File too large; free some space and continue with --resume" in done.stderr
    told = [line for line in done.stderr.splitlines() if not line.startswith("preparing: ")]
    assert len(told) == 1, done.stderr  # but for the progress, on a machine that takes its time
    assert not out.exists()
    subprocess.run(command(path, out, "--resume"), cwd=ROOT, check=True, capture_output=True)
    open_corpus(out).verify()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
@pytest.mark.parametrize("size", ["40k", "300k"])
def test_a_full_disk_is_reported_in_one_sentence_and_the_job_can_be_resumed(tmp_path, size):
    path, disk = tmp_path / "text.txt", tmp_path / "disk"
    long_text(path, 3000)
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", disk], check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this machine lets not even root mount a disk")
    try:
        with mock.patch.object(blocks, "MAX_CHARACTERS", 20_000):
            sentence = refused(path, "-o", disk / "out", "--workers", "1", "--tokenized")
            assert "o space left" in sentence
            assert "free some space and continue with --resume" in sentence
            assert not (disk / "out").exists()
            subprocess.run(["mount", "-o", "remount,size=20m", disk], check=True)
            result = prepare(path, "-o", disk / "out", "--workers", "1", "--tokenized", "--resume")
            assert result.code == 0, result
        open_corpus(disk / "out").verify()
    finally:
        subprocess.run(["umount", disk], check=True)


def test_files_with_a_name_that_is_not_utf8_are_prepared_and_recorded(tmp_path):
    text = tmp_path / os.fsdecode(b"caf\xe9.txt")
    text.write_text(TEXT)
    assert prepare(text, "-o", tmp_path / "out").code == 0
    assert open_corpus(tmp_path / "out").index["provenance"]["inputs"] == [[text.name, len(TEXT)]]
