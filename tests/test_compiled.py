"""C that is built when it is first used: once, and only where that can be."""

import logging
import shutil

import pytest

from elmore import compiled

needs_a_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is here")


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("ELMORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ELMORE_COMPILED", raising=False)
    compiled.library.cache_clear()
    yield tmp_path
    compiled.library.cache_clear()


def source(folder, text="int answer(void) { return 42; }"):
    path = folder / "answer.c"
    path.write_text(text)
    return path


@needs_a_compiler
def test_it_is_built_once_and_again_when_it_changes(fresh, monkeypatch):
    path = source(fresh)
    assert compiled.library(path).answer() == 42
    (built,) = (fresh / "cache" / "compiled").iterdir()
    before = built.stat().st_mtime_ns
    compiled.library.cache_clear()
    assert compiled.library(path).answer() == 42
    assert built.stat().st_mtime_ns == before
    source(fresh, "int answer(void) { return 43; }")
    compiled.library.cache_clear()
    assert compiled.library(path).answer() == 43
    assert len(list((fresh / "cache" / "compiled").iterdir())) == 2


@needs_a_compiler
@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-1], bytes.upper])
def test_a_library_that_was_damaged_is_built_again_and_that_is_said(fresh, caplog, damage):
    path = source(fresh)
    assert compiled.library(path).answer() == 42
    (built,) = (fresh / "cache" / "compiled").iterdir()
    whole = built.read_bytes()
    aside = built.with_name("aside")  # the one that is loaded must stay as it is
    aside.write_bytes(damage(whole))
    aside.replace(built)
    compiled.library.cache_clear()
    assert compiled.library(path).answer() == 42
    assert caplog.messages == [f"{built} is damaged, so answer.c is built again"]
    (again,) = (fresh / "cache" / "compiled").iterdir()
    compiled.library.cache_clear()
    assert compiled.library(path).answer() == 42
    assert len(caplog.messages) == 1
    assert again.read_bytes() != damage(whole)


def a_dangling_link(path):
    path.symlink_to(path.with_name("nothing"))


def a_folder(path):
    path.mkdir()
    (path / "file").touch()


def a_link_to_itself(path):
    path.symlink_to(path)


@needs_a_compiler
@pytest.mark.parametrize("put", [a_dangling_link, a_folder, a_link_to_itself])
def test_a_name_that_cannot_be_read_is_built_again_and_that_is_said(fresh, caplog, put):
    path = source(fresh)
    assert compiled.library(path).answer() == 42
    (built,) = (fresh / "cache" / "compiled").iterdir()
    built.unlink()
    put(built)
    compiled.library.cache_clear()
    assert compiled.library(path).answer() == 42
    assert caplog.messages == [f"{built} is damaged, so answer.c is built again"]
    (again,) = (fresh / "cache" / "compiled").iterdir()
    assert again.is_file()
    assert not again.is_symlink()
    compiled.library.cache_clear()
    assert compiled.library(path).answer() == 42
    assert len(caplog.messages) == 1


@needs_a_compiler
def test_a_library_that_was_built_but_cannot_be_loaded_is_said_to_be_so(fresh, monkeypatch):
    def refuse(name):
        raise OSError("not allowed here")

    monkeypatch.setattr(compiled.ctypes, "CDLL", refuse)
    reason = compiled.why_missing(source(fresh))
    assert reason == "it was built but cannot be loaded (not allowed here)"


@needs_a_compiler
def test_why_a_library_is_missing_can_be_asked(fresh, monkeypatch):
    assert compiled.why_missing(source(fresh)) is None
    compiled.library.cache_clear()
    assert "could not be built" in compiled.why_missing(source(fresh, "int answer(void) {"))
    compiled.library.cache_clear()
    monkeypatch.setenv("CC", "no-such-compiler")
    assert compiled.why_missing(source(fresh)) == "there is no C compiler 'no-such-compiler' here"
    compiled.library.cache_clear()
    monkeypatch.setenv("ELMORE_COMPILED", "0")
    assert compiled.why_missing(source(fresh)) == "ELMORE_COMPILED=0 forbids it"


@needs_a_compiler
def test_what_cannot_be_built_is_not_there_and_leaves_nothing(fresh, caplog):
    with caplog.at_level(logging.INFO):
        assert compiled.library(source(fresh, "int answer(void) {")) is None
    assert "answer.c is not used: it could not be built" in caplog.text
    assert list((fresh / "cache" / "compiled").iterdir()) == []


def test_without_a_compiler_or_where_it_must_not_be_it_is_not_there(fresh, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    assert compiled.library(source(fresh)) is None
    monkeypatch.delenv("CC")
    monkeypatch.setenv("ELMORE_COMPILED", "0")
    compiled.library.cache_clear()
    assert compiled.library(source(fresh)) is None
    assert not (fresh / "cache").exists()


@needs_a_compiler
def test_a_cache_that_cannot_be_written_is_no_failure(fresh):
    (fresh / "cache").write_text("a file where a folder belongs")
    assert compiled.library(source(fresh)) is None
