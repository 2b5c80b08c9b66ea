import io
import stat
import struct
import tempfile
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmore.errors import WeightsError
from elmore.weights import archive as module
from elmore.weights.archive import find_content, is_zip, unpack
from tests.support.sweeps import pick

Member = tuple[str | zipfile.ZipInfo, bytes]


def packed(*members: Member, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as target:
        for name, data in members:
            target.writestr(name, data)
    return buffer.getvalue()


def write(folder: Path, data: bytes) -> Path:
    path = folder / "model.zip"
    path.write_bytes(data)
    return path


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def refusal(archive: Path, into: Path) -> str:
    before = sorted(archive.parent.rglob("*"))
    with pytest.raises(WeightsError) as caught:
        unpack(archive, into)
    assert sorted(archive.parent.rglob("*")) == before, "something was left behind"
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert not sentence.endswith(".")
    assert str(archive) in sentence
    return sentence


def renamed(name: str) -> zipfile.ZipInfo:
    """A member with a name that zipfile would tidy up when it is given in the usual way."""
    member = zipfile.ZipInfo("x")
    member.filename = name
    return member


def special(kind: int) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo("link")
    member.external_attr = (kind | 0o777) << 16
    return member


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("exists", [False, True])
def test_an_archive_is_unpacked_as_it_was_packed(tmp_path, method, exists):
    archive = write(
        tmp_path,
        packed(("a.json", b"{}"), ("deep/er/b.bin", b"1" * 5000), ("c", b""), method=method),
    )
    into = tmp_path / "new" / "folder"
    if exists:
        into.mkdir(parents=True)
    unpack(archive, into)
    assert files(into) == {"a.json": b"{}", "deep/er/b.bin": b"1" * 5000, "c": b""}
    assert [path.name for path in into.parent.iterdir()] == ["folder"]


def test_empty_folders_are_unpacked(tmp_path):
    unpack(write(tmp_path, packed(("empty/", b""))), tmp_path / "out")
    assert (tmp_path / "out" / "empty").is_dir()


def test_an_unpacked_folder_is_as_readable_as_any_other(tmp_path):
    unpack(write(tmp_path, packed(("a", b""))), tmp_path / "out")
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_files_that_macos_adds_are_left_out(tmp_path):
    clutter = [("__MACOSX/._a", b"x"), (".DS_Store", b"x"), ("deep/.DS_Store", b"x")]
    unpack(write(tmp_path, packed(("deep/a", b"1"), *clutter)), tmp_path / "out")
    assert files(tmp_path / "out") == {"deep/a": b"1"}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("/etc/passwd", "absolute path"),
        ("../outside", "'..'"),
        ("a/../../outside", "'..'"),
        ("..", "'..'"),
        ("..\\outside", "backslash"),
        ("\\\\server\\share", "backslash"),
        ("a\x00b", "control character"),
        ("a\nb", "control character"),
        (".", "empty name"),
        ("C:outside", "drive letter"),
        ("a/C:/outside", "drive letter"),
    ],
)
def test_a_name_that_could_lead_elsewhere_is_refused(tmp_path, name, reason):
    archive = write(tmp_path, packed(("fine", b"1"), (renamed(name), b"evil")))
    sentence = refusal(archive, tmp_path / "out")
    assert repr(name) in sentence
    assert reason in sentence


@pytest.mark.parametrize(
    ("kind", "reason"), [(stat.S_IFLNK, "is a symbolic link"), (stat.S_IFIFO, "is not a plain")]
)
def test_a_link_or_a_special_file_is_refused(tmp_path, kind, reason):
    sentence = refusal(write(tmp_path, packed((special(kind), b"/etc/passwd"))), tmp_path / "out")
    assert f"'link' {reason}" in sentence


def test_an_encrypted_member_is_refused(tmp_path):
    data = bytearray(packed(("secret", b"1")))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    assert "'secret' is encrypted" in refusal(write(tmp_path, bytes(data)), tmp_path / "out")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("second", ["a/b", "A/B", "a/./b", "a//b"])
def test_a_member_that_is_there_twice_is_refused(tmp_path, second):
    archive = write(tmp_path, packed(("a/b", b"1"), (second, b"2")))
    assert f"{second!r} occurs twice" in refusal(archive, tmp_path / "out")


def test_a_member_below_a_file_is_refused(tmp_path):
    refusal(write(tmp_path, packed(("a", b"1"), ("a/b", b"2"))), tmp_path / "out")


def test_an_archive_that_grows_a_hundredfold_is_refused(tmp_path):
    data = packed(("zeros", bytes(module.FREE_BYTES + 1)))
    assert len(data) < module.FREE_BYTES / module.MAX_RATIO
    sentence = refusal(write(tmp_path, data), tmp_path / "out")
    assert f"would unpack to {module.FREE_BYTES + 1}" in sentence


def test_a_small_archive_may_grow_a_hundredfold(tmp_path):
    unpack(write(tmp_path, packed(("zeros", bytes(1 << 20)))), tmp_path / "out")
    assert files(tmp_path / "out") == {"zeros": bytes(1 << 20)}


def test_an_archive_larger_than_any_weights_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 1000)
    archive = write(tmp_path, packed(("a", b"1" * 501), ("b", b"2" * 500), method=0))
    assert "would unpack to 1001" in refusal(archive, tmp_path / "out")


def test_an_archive_of_too_many_members_is_refused(tmp_path):
    archive = write(tmp_path, packed(*((str(i), b"") for i in range(10_001))))
    assert "10001 members" in refusal(archive, tmp_path / "out")


def lying(content: bytes, declared: int, checked: int, method: int) -> bytes:
    """An archive whose member says it is shorter than it is, with the checksum of a beginning."""
    data = bytearray(packed(("liar", content), method=method))
    entry = data.index(b"PK\x01\x02")
    struct.pack_into("<L", data, entry + 16, zlib.crc32(content[:checked]))
    struct.pack_into("<L", data, entry + 24, declared)
    return bytes(data)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_member_that_yields_more_than_it_says_is_refused(tmp_path, method):
    archive = write(tmp_path, lying(b"12345" * 1000, 1234, 1235, method))
    assert "'liar' has more than the 1234 bytes" in refusal(archive, tmp_path / "out")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_member_that_zipfile_alone_would_cut_silently_is_refused(tmp_path, method):
    archive = write(tmp_path, lying(b"12345" * 1000, 1234, 1234, method))
    with zipfile.ZipFile(archive) as trusting:
        assert len(trusting.read("liar")) == 1234
    assert "damaged" in refusal(archive, tmp_path / "out")


def test_a_member_that_yields_less_than_it_says_is_refused(tmp_path):
    data = bytearray(packed(("liar", b"12345" * 1000)))
    struct.pack_into("<L", data, data.index(b"PK\x01\x02") + 24, 5001)
    assert "'liar' has fewer than the 5001" in refusal(write(tmp_path, data), tmp_path / "out")


@pytest.mark.parametrize("cut", [0, 10, 500, -1])
def test_a_truncated_archive_is_named(tmp_path, cut):
    archive = write(tmp_path, packed(("a", bytes(1000)), method=zipfile.ZIP_STORED)[:cut])
    assert "damaged or truncated" in refusal(archive, tmp_path / "out")


def test_a_flipped_byte_is_noticed(tmp_path):
    data = bytearray(packed(("a", b"weights" * 10), method=zipfile.ZIP_STORED))
    data[data.index(b"weights")] ^= 1
    assert "damaged" in refusal(write(tmp_path, bytes(data)), tmp_path / "out")


def test_an_unknown_compression_is_named(tmp_path):
    data = bytearray(packed(("a", b"1")))
    struct.pack_into("<H", data, data.index(b"PK\x01\x02") + 10, 9)
    assert "compression" in refusal(write(tmp_path, bytes(data)), tmp_path / "out")


def test_an_absent_archive_is_named(tmp_path):
    assert "No such file" in refusal(tmp_path / "absent.zip", tmp_path / "out")


WHOLE = packed(("a/b.json", b"{}" * 40), ("a/c.bin", bytes(300)), ("d", b"stored" * 9))


@settings(max_examples=pick(30, 150), deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=4))
def test_after_any_change_of_bytes_the_folder_is_complete_or_absent(changes):
    data = bytearray(WHOLE)
    for position, value in changes:
        data[position] = value
    with tempfile.TemporaryDirectory() as folder:
        archive, into = write(Path(folder), bytes(data)), Path(folder) / "room" / "out"
        try:
            unpack(archive, into)
        except WeightsError:
            assert not into.exists()
        assert {path.name for path in Path(folder).iterdir()} <= {"model.zip", "room"}
        assert {path.name for path in (Path(folder) / "room").iterdir()} <= {"out"}


def test_a_folder_that_holds_something_is_left_as_it_is(tmp_path):
    archive, into = write(tmp_path, packed(("a", b"1"))), tmp_path / "out"
    into.mkdir()
    (into / "mine").write_text("mine")
    assert f"{into} exists already" in refusal(archive, into)
    assert files(into) == {"mine": b"mine"}


def test_a_zip_is_known_by_its_first_bytes(tmp_path):
    whole = packed(("a", b"1"))
    assert is_zip(write(tmp_path, whole))
    assert is_zip(write(tmp_path, whole[:20]))
    assert is_zip(write(tmp_path, packed()))
    assert not is_zip(write(tmp_path, b"\x89HDF\r\n" + whole))
    assert not is_zip(write(tmp_path, b""))
    assert not is_zip(tmp_path)
    assert not is_zip(tmp_path / "absent")


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["a", "b"], ""),
        (["top/a"], "top"),
        (["top/next/a", "top/next/b/c"], "top/next"),
        (["top/a", "beside"], ""),
        (["one/a", "two/a"], ""),
        (["only"], ""),
        ([], ""),
    ],
)
def test_the_files_are_found_below_lone_folders(tmp_path, names, found):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert find_content(tmp_path) == tmp_path / found
