"""The native library: taken from the package, or built once on first use."""

import logging
import platform
import shutil
import subprocess

import pytest

from elmore import native_build
from elmore.model import native

needs_a_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is here")


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("ELMORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ELMORE_NATIVE", raising=False)
    native_build.load.cache_clear()
    yield tmp_path
    native_build.load.cache_clear()


EXPORT = '__attribute__((visibility("default")))'


def source(folder, text="int answer(void) { return 42; }"):
    sources = folder / "sources"
    sources.mkdir(exist_ok=True)
    (sources / "library.c").write_text(f"{EXPORT} {text}")
    (sources / "kernels.c").write_text("const int ISA = 1;")
    return sources


def damaged(caplog) -> list[str]:
    return [message for message in caplog.messages if "is damaged" in message]


@needs_a_compiler
def test_it_is_built_once_and_again_when_it_changes(fresh, monkeypatch):
    path = source(fresh)
    assert native_build.load(path).answer() == 42
    (built,) = (fresh / "cache" / "native").iterdir()
    before = built.stat().st_mtime_ns
    native_build.load.cache_clear()
    assert native_build.load(path).answer() == 42
    assert built.stat().st_mtime_ns == before
    source(fresh, "int answer(void) { return 43; }")
    native_build.load.cache_clear()
    assert native_build.load(path).answer() == 43
    assert len(list((fresh / "cache" / "native").iterdir())) == 2


@needs_a_compiler
@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-1], bytes.upper])
def test_a_damaged_library_is_rebuilt_with_a_warning(fresh, caplog, damage):
    path = source(fresh)
    assert native_build.load(path).answer() == 42
    (built,) = (fresh / "cache" / "native").iterdir()
    whole = built.read_bytes()
    aside = built.with_name("aside")  # the one that is loaded must stay as it is
    aside.write_bytes(damage(whole))
    aside.replace(built)
    native_build.load.cache_clear()
    assert native_build.load(path).answer() == 42
    assert damaged(caplog) == [f"{built} is damaged, so the native library is built again"]
    (again,) = (fresh / "cache" / "native").iterdir()
    native_build.load.cache_clear()
    assert native_build.load(path).answer() == 42
    assert len(damaged(caplog)) == 1
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
def test_an_unloadable_cache_entry_is_rebuilt_with_a_warning(fresh, caplog, put):
    path = source(fresh)
    assert native_build.load(path).answer() == 42
    (built,) = (fresh / "cache" / "native").iterdir()
    built.unlink()
    put(built)
    native_build.load.cache_clear()
    assert native_build.load(path).answer() == 42
    assert damaged(caplog) == [f"{built} is damaged, so the native library is built again"]
    (again,) = (fresh / "cache" / "native").iterdir()
    assert again.is_file()
    assert not again.is_symlink()
    native_build.load.cache_clear()
    assert native_build.load(path).answer() == 42
    assert len(damaged(caplog)) == 1


@needs_a_compiler
def test_a_built_library_that_cannot_be_loaded_is_reported(fresh, monkeypatch):
    def refuse(name):
        raise OSError("not allowed here")

    monkeypatch.setattr(native_build.ctypes, "CDLL", refuse)
    reason = native_build.why_missing(source(fresh))
    assert reason == "it cannot be loaded (not allowed here)"


@needs_a_compiler
@pytest.mark.parametrize("has_serial", [True, False])
def test_without_openmp_the_library_for_one_thread_is_used(fresh, monkeypatch, caplog, has_serial):
    folder, open_library = source(fresh), native_build.ctypes.CDLL
    native_build.compile_library(folder, folder / native_build.LIBRARY)
    if has_serial:
        native_build.compile_library(folder, folder / native_build.SERIAL, threads=False)

    def refuse(name):
        if name.endswith(native_build.LIBRARY):
            raise OSError("libgomp.so.1: cannot open shared object file: No such file or directory")
        return open_library(name)

    monkeypatch.setattr(native_build.ctypes, "CDLL", refuse)
    library = native_build.load(folder)
    (record,) = caplog.records
    assert "libgomp.so.1 is not installed (Debian, Ubuntu: apt install libgomp1" in record.message
    assert "\n" not in record.message
    if has_serial:
        assert library.answer() == 42
        assert record.message.startswith("the native library runs on one thread: OpenMP's")
    else:
        assert library is None
        assert native_build.why_missing(folder).startswith("OpenMP's libgomp.so.1 is not installed")


@needs_a_compiler
def test_a_damaged_library_for_one_thread_is_reported(fresh, monkeypatch):
    folder, open_library = source(fresh), native_build.ctypes.CDLL
    native_build.compile_library(folder, folder / native_build.LIBRARY)
    (folder / native_build.SERIAL).write_bytes(b"damaged")

    def refuse(name):
        if name.endswith(native_build.LIBRARY):
            raise OSError("libgomp.so.1: cannot open shared object file: No such file or directory")
        return open_library(name)

    monkeypatch.setattr(native_build.ctypes, "CDLL", refuse)
    assert native_build.load(folder) is None
    assert native_build.why_missing(folder).startswith("it cannot be loaded (")


@needs_a_compiler
def test_why_a_library_is_missing_can_be_asked(fresh, monkeypatch):
    assert native_build.why_missing(source(fresh)) is None
    native_build.load.cache_clear()
    assert "could not be built" in native_build.why_missing(source(fresh, "int answer(void) {"))
    native_build.load.cache_clear()
    monkeypatch.setenv("CC", "no-such-compiler")
    assert (
        native_build.why_missing(source(fresh)) == "there is no C compiler 'no-such-compiler' here"
    )
    native_build.load.cache_clear()
    monkeypatch.setenv("ELMORE_NATIVE", "0")
    assert native_build.why_missing(source(fresh)) == "ELMORE_NATIVE=0 forbids it"


@needs_a_compiler
def test_a_failed_build_leaves_no_library_and_no_files(fresh, caplog):
    with caplog.at_level(logging.INFO):
        assert native_build.load(source(fresh, "int answer(void) {")) is None
    assert "the native library is not used: it could not be built" in caplog.text
    assert list((fresh / "cache" / "native").iterdir()) == []


def test_without_a_compiler_or_when_disabled_there_is_no_library(fresh, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    assert native_build.load(source(fresh)) is None
    monkeypatch.delenv("CC")
    monkeypatch.setenv("ELMORE_NATIVE", "0")
    native_build.load.cache_clear()
    assert native_build.load(source(fresh)) is None
    assert not (fresh / "cache").exists()


@needs_a_compiler
def test_a_cache_that_cannot_be_written_causes_no_error(fresh):
    (fresh / "cache").write_text("a file where a folder belongs")
    assert native_build.load(source(fresh)) is None


@needs_a_compiler
def test_the_library_of_the_package_is_taken_before_any_other(fresh, caplog):
    folder = source(fresh)
    native_build.compile_library(folder, folder / native_build.LIBRARY)
    source(fresh, "int answer(void) { return 43; }")
    assert native_build.load(folder).answer() == 42
    assert not (fresh / "cache").exists()
    assert not caplog.messages


@needs_a_compiler
def test_two_builds_have_the_same_bytes(fresh):
    folder = source(fresh)
    for name in ("one.so", "two.so"):
        native_build.compile_library(folder, fresh / name)
    assert (fresh / "one.so").read_bytes() == (fresh / "two.so").read_bytes()


@needs_a_compiler
def test_a_build_is_announced_once(fresh, caplog):
    folder = source(fresh)
    native_build.load(folder)
    native_build.load.cache_clear()
    native_build.load(folder)
    (message,) = caplog.messages
    assert message.startswith("building the native library with ")


def test_an_architecture_without_kernels_has_no_library(fresh, monkeypatch):
    monkeypatch.setattr(native_build.platform, "machine", lambda: "riscv64")
    reason = native_build.why_missing(source(fresh))
    assert reason in ("it has no kernels for riscv64", "there is no C compiler 'cc' here")


@needs_a_compiler
@pytest.mark.parametrize(("name", "is_built"), [("amx", True), ("needed", False)])
def test_a_compiler_that_does_not_know_the_matrix_unit_builds_the_others(
    fresh, monkeypatch, name, is_built
):
    sets = {"base": (), name: ("-mno-such-instructions",)}
    monkeypatch.setattr(native_build, "_instruction_sets", lambda: sets)
    assert (native_build.load(source(fresh)) is not None) == is_built


@needs_a_compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="a matrix unit of x86")
def test_a_compiler_that_knows_the_matrix_unit_builds_for_it(fresh, monkeypatch):
    probe = ["cc", "-mamx-int8", "-E", "-x", "c", "/dev/null"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("this compiler does not know it")
    sets = {"amx": native_build._instruction_sets()["amx"]}
    monkeypatch.setattr(native_build, "_instruction_sets", lambda: sets)
    monkeypatch.setattr(native_build, "_OPTIONAL", set())
    native_build.compile_library(native.SOURCES, fresh / "amx.so")
