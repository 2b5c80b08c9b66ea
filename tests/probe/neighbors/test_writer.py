import contextlib
import json
import os
import shutil
import signal
import subprocess

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmore import lock
from elmore.embed.embedder import Embedder
from elmore.embed.loading import load
from elmore.errors import DataError
from elmore.probe.neighbors import storage, writer
from elmore.probe.neighbors.index import OccurrenceIndex
from tests.support import simulated_bf16, toy_corpus, toy_tasks
from tests.support.cli_processes import _context
from tests.support.full_disk import limit_files
from tests.support.sweeps import pick
from tests.support.toy_index import LINES, build_index, contents, write_text


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return toy_tasks.bilm(tmp_path_factory.mktemp("model") / "bilm")


@pytest.fixture(scope="module")
def elmo(model):
    return load(model, device="cpu")


words = st.lists(st.sampled_from(["a", "b", "日本", "[", "e e"]), min_size=1, max_size=5)
texts = st.lists(words, min_size=1, max_size=8)


def jsonl(path, sentences):
    path.write_text("".join(json.dumps({"text": words}) + "\n" for words in sentences))
    return path


@given(texts, texts, st.integers(1, 12))
@settings(max_examples=pick(4, 8))
def test_an_appended_text_is_searched_like_the_first(tmp_path_factory, elmo, one, two, size):
    path = tmp_path_factory.mktemp("append")
    first, second = jsonl(path / "1.jsonl", one), jsonl(path / "2.jsonl", two)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "PART_SIZE", size)
        grown = OccurrenceIndex.build(path / "grown", elmo, [first])
        grown.append([second])
        whole = OccurrenceIndex.build(path / "whole", elmo, [first, second])
    if one == two:  # it is in the index already
        assert len(grown) == sum(map(len, one))
        return
    assert len(grown) == len(whole) == sum(map(len, one + two))
    for name in ("layer-2.f16", "words.i32", "words.jsonl"):
        assert (path / "grown" / name).read_bytes() == (path / "whole" / name).read_bytes()
    places = [(use.tokens, use.position) for use in map(grown.occurrence, range(len(grown)))]
    assert places == [(tokens, at) for tokens in one + two for at in range(len(tokens))]


def test_an_open_index_does_not_change_when_text_is_appended(tmp_path, elmo):
    index = build_index(tmp_path, elmo)
    other = OccurrenceIndex.open(tmp_path / "index", elmo)
    more = write_text(tmp_path / "more.txt", ["a new play"])
    for _ in range(2):  # a text is added once
        other.append([more], tokenized=True)
    assert (len(index), len(other)) == (16, 19)
    assert len(index.search(["it"], 0, 100)) == 16
    assert len(other.search(["it"], 0, 100)) == 19


def test_a_built_library_is_not_rebuilt(tmp_path, elmo, monkeypatch):
    before = build_index(tmp_path, elmo)
    monkeypatch.setattr(type(elmo), "stream", None)
    assert len(build_index(tmp_path, elmo)) == len(before)


def test_without_a_folder_the_index_is_cached_and_may_have_more_layers(tmp_path, elmo, monkeypatch):
    monkeypatch.setenv("ELMORE_CACHE", str(tmp_path / "cache"))
    file = write_text(tmp_path / "a.txt")
    every = OccurrenceIndex.build(None, elmo, [file], tokenized=True, layers=["all"])
    assert every.folder.is_relative_to(tmp_path / "cache")
    one = OccurrenceIndex.build(None, elmo, [file], tokenized=True, layers=["1"])
    assert one.folder == every.folder
    average = OccurrenceIndex.build(None, elmo, [file], tokenized=True, layers=["average"])
    write_text(tmp_path / "a.txt", LINES[:1])
    other = OccurrenceIndex.build(None, elmo, [file], tokenized=True, layers=["all"])
    assert len({every.folder, average.folder, other.folder}) == 3


def test_each_precision_has_an_index_of_its_own_in_the_cache(tmp_path, elmo, monkeypatch):
    monkeypatch.setenv("ELMORE_CACHE", str(tmp_path / "cache"))
    file = write_text(tmp_path / "a.txt")
    simulated_bf16.simulate_bf16_units(monkeypatch)
    fast = Embedder(elmo.bundle, device="cpu", precision="fast")
    folders = [
        OccurrenceIndex.build(None, one, [file], tokenized=True).folder
        for one in (elmo, fast, elmo)
    ]
    assert folders[0] == folders[2] != folders[1]


def dying(arguments, part, moment="", number=0):
    """Build an index; with a moment, be killed at the n-th time that it comes."""
    model, file, folder = arguments
    torch.set_num_threads(1)
    writer.PART_SIZE = part
    if moment:
        _prepare_death(moment, number)
    OccurrenceIndex.build(folder, load(model, device="cpu"), [file], tokenized=True)


def _prepare_death(moment, number):
    left = [number]

    def die() -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    name = moment.removeprefix("after ")
    owner = {"add": writer._Writer, "write_manifest": storage}[name]
    inner = getattr(owner, name)

    def changed(*given):
        if not moment.startswith("after"):
            die()
        inner(*given)
        if moment.startswith("after"):
            die()

    setattr(owner, name, changed)


def test_kills_lose_no_line_and_change_no_vector(tmp_path, model, elmo):
    """Real processes end by SIGKILL in a part, before what makes it count, and after.

    All of it in processes of one kind: the last bits of a vector depend on their threads.
    """
    file = write_text(tmp_path / "text.txt", toy_corpus.sentences(200))

    def build(folder, *death):
        job = _context.Process(
            target=dying, args=((str(model), str(file), str(folder)), 150, *death)
        )
        job.start()
        job.join()
        return job.exitcode

    assert build(tmp_path / "whole") == 0
    assert len(list(storage.read_manifest(tmp_path / "whole").parts)) > 5
    folder, done = tmp_path / "killed", []
    for moment, number in [("add", 3), ("write_manifest", 4), ("after add", 60)]:
        assert build(folder, moment, number) == -signal.SIGKILL
        done.append(len(list(storage.read_manifest(folder).parts)))
        with pytest.raises(DataError, match="the build did not finish; run the same command"):
            OccurrenceIndex.open(folder, elmo)
    assert done == sorted(done)
    assert done[-1] > 2
    assert build(folder) == 0
    assert contents(folder) == contents(tmp_path / "whole")
    assert len(OccurrenceIndex.open(folder, elmo)) == sum(
        len(s.split()) for s in toy_corpus.sentences(200)
    )


def stopped(tmp_path, elmo, monkeypatch, append=False):
    """Leave an index of which some parts are done."""
    monkeypatch.setattr(writer, "PART_SIZE", 20)
    file = write_text(tmp_path / "long.txt", toy_corpus.sentences(40))
    add = writer._Writer.add
    left = iter(range(20))

    def stopping(*given):
        if next(left, None) is None:
            raise KeyboardInterrupt
        add(*given)

    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(writer._Writer, "add", stopping)
        if append:
            OccurrenceIndex.open(tmp_path / "index", elmo).append([file], tokenized=True)
        else:
            OccurrenceIndex.build(tmp_path / "index", elmo, [file], tokenized=True)
    return file


def test_an_unfinished_append_leaves_what_was_there_in_use(tmp_path, elmo, monkeypatch):
    build_index(tmp_path, elmo)
    file = stopped(tmp_path, elmo, monkeypatch, append=True)
    index = OccurrenceIndex.open(tmp_path / "index", elmo)
    assert len(index) == 16
    other = write_text(tmp_path / "other.txt", ["another"])
    with pytest.raises(DataError, match=r"the build of long\.txt did not finish"):
        index.append([other], tokenized=True)
    index.append([file], tokenized=True)
    assert len(index) == 16 + sum(len(line.split()) for line in toy_corpus.sentences(40))


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_a_part_damaged_on_disk_is_computed_again(tmp_path, elmo, monkeypatch, damage, caplog):
    file = stopped(tmp_path, elmo, monkeypatch)
    path = tmp_path / "index" / "layer-2.f16"
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data if damage == "flipped" else data[: len(data) // 3])
    if damage == "gone":
        path.unlink()
    OccurrenceIndex.build(tmp_path / "index", elmo, [file], tokenized=True)
    assert "damaged parts again" in caplog.text
    OccurrenceIndex.build(tmp_path / "whole", elmo, [file], tokenized=True)
    assert contents(tmp_path / "index") == contents(tmp_path / "whole")


def test_damaged_vectors_are_noticed_before_more_are_added(tmp_path, elmo):
    index = build_index(tmp_path, elmo)
    path = tmp_path / "index" / "layer-2.f16"
    data = bytearray(path.read_bytes())
    data[2] ^= 1
    path.unlink()  # the map of before is still open
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"layer-2\.f16: damaged"):
        index.append([write_text(tmp_path / "more.txt", ["more"])])


def test_an_index_of_another_text_is_refused_and_named(tmp_path, elmo):
    build_index(tmp_path, elmo)
    other = write_text(tmp_path / "other.txt", ["another text"])
    with pytest.raises(DataError, match=r"index of another text \(index\.txt\); --append adds"):
        OccurrenceIndex.build(tmp_path / "index", elmo, [other], tokenized=True)


def test_a_text_without_a_word_is_refused_and_leaves_nothing(tmp_path, elmo):
    with pytest.raises(DataError, match=r"index\.txt: holds no words"):
        build_index(tmp_path, elmo, lines=["", "  "])
    assert not (tmp_path / "index").exists()
    index = build_index(tmp_path, elmo)
    with pytest.raises(DataError, match=r"empty\.txt: holds no words"):
        index.append([write_text(tmp_path / "empty.txt", [])])
    assert len(OccurrenceIndex.open(tmp_path / "index", elmo)) == 16


def test_a_corrected_text_is_read_from_its_start(tmp_path, elmo):
    path = tmp_path / "bad.txt"
    path.write_bytes(b"good\n\xff\n")
    with pytest.raises(DataError, match=r"bad\.txt: line 2 is not UTF-8"):
        OccurrenceIndex.build(tmp_path / "index", elmo, [path], tokenized=True)
    path.write_bytes(b"good\nbetter\n")
    assert len(OccurrenceIndex.build(tmp_path / "index", elmo, [path], tokenized=True)) == 2


def test_a_folder_of_something_else_is_left_alone(tmp_path, elmo):
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match=r"holds 'thesis\.txt' and is not an index"):
        build_index(tmp_path, elmo)
    with pytest.raises(DataError, match=r"holds no index\.json; build it with"):
        OccurrenceIndex.open(tmp_path / "index", elmo)
    shutil.rmtree(tmp_path / "index")
    (tmp_path / "index").write_text("")
    with pytest.raises(DataError, match="exists and is not a folder"):
        build_index(tmp_path, elmo)


def test_a_second_writer_is_refused_and_readers_are_not(tmp_path, elmo):
    index = build_index(tmp_path, elmo)
    before = contents(tmp_path / "index")
    more = write_text(tmp_path / "more.txt", ["a new play"])
    with lock.acquire(tmp_path / "index" / "index.json.lock"):
        assert len(build_index(tmp_path, elmo)) == len(index)
        assert len(OccurrenceIndex.open(tmp_path / "index", elmo)) == len(index)
        with pytest.raises(DataError, match=f"index: process {os.getpid()} on .* working there"):
            index.append([more], tokenized=True)
    assert contents(tmp_path / "index") == before
    index.append([more], tokenized=True)
    assert len(index) == 19


def test_the_lock_of_a_writer_that_was_killed_is_no_stray_file(tmp_path, elmo):
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "index.json.lock").write_text(' {"pid": 1, "host": "x", "since": "then"}')
    build_index(tmp_path, elmo)
    assert not (tmp_path / "index" / "index.json.lock").exists()


def test_standard_input_is_no_text_to_come_back_to(tmp_path, elmo):
    with pytest.raises(DataError, match="an index needs files"):
        OccurrenceIndex.build(tmp_path / "index", elmo, ["-"])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_refused_before_it_is_read(tmp_path, elmo):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"pipe: a pipe can be read only once; save it as a file"):
        OccurrenceIndex.build(tmp_path / "index", elmo, [tmp_path / "pipe"])


def test_the_first_text_added_to_an_index_of_an_earlier_format_fixes_its_precision(
    tmp_path, elmo, monkeypatch
):
    simulated_bf16.simulate_bf16_units(monkeypatch)
    fast = Embedder(elmo.bundle, device="cpu", precision="fast")
    path = build_index(tmp_path, elmo).folder / "index.json"
    manifest = json.loads(path.read_text())
    del manifest["precision"]
    path.write_text(json.dumps({**manifest, "format": 2}))

    def append(embedder, name, *lines):
        file = write_text(tmp_path / name, lines)
        OccurrenceIndex.open(path.parent, embedder).append([file], tokenized=True)

    with pytest.raises(DataError, match=r"empty\.txt: holds no words"):
        append(elmo, "empty.txt")
    assert storage.read_manifest(path.parent).precision is None
    append(fast, "first.txt", "a new play")
    assert storage.read_manifest(path.parent).precision == "fast"
    with pytest.raises(DataError, match="built in fast precision, this model runs in exact; pass"):
        append(elmo, "second.txt", "another play")
    append(fast, "second.txt", "another play")
    assert len(OccurrenceIndex.open(path.parent, fast)) == 21


@pytest.mark.parametrize(
    ("lines", "part"),
    [(LINES * 40, 100_000), (LINES, 4), (LINES, 100_000)],
    ids=["in a part", "at the end of a part", "at the end of the text"],
)
def test_an_error_of_the_disk_is_named_and_the_build_resumes(
    tmp_path, elmo, monkeypatch, lines, part
):
    monkeypatch.setattr(writer, "PART_SIZE", part)
    whole = contents(build_index(tmp_path, elmo, "whole", lines).folder)
    with monkeypatch.context() as patch:
        limit_files(patch, "layer-2.f16", len(whole["layer-2.f16"]) - 1)
        with pytest.raises(DataError) as failed:
            OccurrenceIndex.build(
                tmp_path / "index", elmo, [tmp_path / "whole.txt"], tokenized=True
            )
    assert str(failed.value) == (
        f"{tmp_path / 'index'}: cannot be written (No space left on device); free some space and "
        "run the same command to resume"
    )
    OccurrenceIndex.build(tmp_path / "index", elmo, [tmp_path / "whole.txt"], tokenized=True)
    assert contents(tmp_path / "index") == whole


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_named_and_the_build_resumes(tmp_path, elmo):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "none", disk], check=False)
    if mounted.returncode != 0:
        pytest.skip("this machine lets not even root mount a disk")
    file = write_text(tmp_path / "a.txt", LINES * 300)
    try:
        with pytest.raises(DataError) as failed:
            OccurrenceIndex.build(disk / "index", elmo, [file], tokenized=True)
        assert str(failed.value) == (
            f"{disk / 'index'}: cannot be written (No space left on device); free some space and "
            "run the same command to resume"
        )
        subprocess.run(["mount", "-o", "remount,size=20m", disk], check=True)
        assert len(OccurrenceIndex.build(disk / "index", elmo, [file], tokenized=True)) == 4800
        OccurrenceIndex.build(tmp_path / "index", elmo, [file], tokenized=True)
        assert contents(disk / "index") == contents(tmp_path / "index")
    finally:
        subprocess.run(["umount", "-l", disk], check=True)  # the open index is mapped
