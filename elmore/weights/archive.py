"""Unpack an untrusted zip of weights.

An archive may come from an address that has changed hands. The names and declared sizes of its
members are checked before anything is written, and their real sizes while they are written. The
folder is complete or absent.
"""

import copy
import lzma
import re
import stat
import struct
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from elmore import atomic
from elmore.errors import ElmoreError, WeightsError

MAX_MEMBERS = 10_000
MAX_BYTES = 16 << 30
MAX_RATIO = 100
"""Maximum growth of an archive above `FREE_BYTES`: weights hardly compress."""
FREE_BYTES = 100 << 20
CHUNK = 1 << 20

ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    RuntimeError,  # also NotImplementedError: an unknown compression
    ValueError,
    OverflowError,
)


def is_zip(path: Path) -> bool:
    """Return whether a file starts like a zip, even if it is truncated."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def unpack(archive: Path, into: Path) -> None:
    """Unpack an archive into the folder `into`, which must be absent or empty.

    Raises:
        WeightsError: The archive is damaged or unsafe, or the folder cannot be written.
    """
    try:
        with atomic.folder(into) as tmp, zipfile.ZipFile(archive) as source:
            for member in _check_members(archive, source.infolist()):
                _write(archive, source, member, tmp)
    except WeightsError:
        raise
    except ElmoreError as error:
        raise WeightsError(f"{archive} cannot be unpacked: {error}") from error
    except OSError as error:
        raise WeightsError(
            f"{archive} cannot be unpacked into {into}: {error.strerror or error}; "
            "check disk space and permissions, or download the archive again"
        ) from error
    except ZIP_ERRORS as error:
        raise WeightsError(
            f"{archive} is damaged or truncated: {error}; delete it and download it again"
        ) from error


def find_content(folder: Path) -> Path:
    """Return the folder with the files, which may be nested in single folders."""
    while True:
        entries = list(folder.iterdir())
        if len(entries) != 1 or entries[0].is_symlink() or not entries[0].is_dir():
            return folder
        folder = entries[0]


def _check_members(archive: Path, members: list[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
    """Return the members to write; raise WeightsError for an unsafe archive."""
    if len(members) > MAX_MEMBERS:
        raise WeightsError(
            f"{archive} has {len(members)} members, more than the {MAX_MEMBERS} allowed; "
            "unpack it manually if you trust it"
        )
    files = [member for member in members if not _is_clutter(member)]
    total = sum(member.file_size for member in files)
    size = archive.stat().st_size
    if total > MAX_BYTES or total > max(FREE_BYTES, MAX_RATIO * size):
        raise WeightsError(
            f"{archive} has {size} bytes and would unpack to {total}, too much for weights; "
            "unpack it manually if you trust it"
        )
    names = set()
    for member in files:
        key = str(PurePosixPath(member.filename)).casefold()  # some disks ignore case
        if problem := _find_problem(member) or ("occurs twice" if key in names else ""):
            raise _member_error(archive, member, problem)
        names.add(key)
    return files


def _is_clutter(member: zipfile.ZipInfo) -> bool:
    """Return whether macOS added the member."""
    parts = PurePosixPath(member.filename).parts
    return parts[:1] == ("__MACOSX",) or parts[-1:] == (".DS_Store",)


def _find_problem(member: zipfile.ZipInfo) -> str:
    name = member.orig_filename  # zipfile changes `filename` at a NUL or backslash
    kind = stat.S_IFMT(member.external_attr >> 16)
    if name.startswith("/"):
        return "has an absolute path"
    if ".." in PurePosixPath(name).parts:
        return "leads out of the folder with '..'"
    if not PurePosixPath(name).parts or re.search(r"[\\\x00-\x1f\x7f]", name):
        return "has an empty name, a backslash or a control character in it"
    if ":" in name:
        return "has a drive letter or another ':' in its name"
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a symbolic link" if stat.S_ISLNK(kind) else "is not a plain file"
    return "is encrypted" if member.flag_bits & 0x41 else ""


def _write(archive: Path, source: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path) -> None:
    target = folder / member.filename
    if member.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    longer = copy.copy(member)
    longer.file_size += (
        1  # zipfile silently stops at this size; one more byte shows if there is more
    )
    count = 0
    with source.open(longer) as packed, target.open("xb") as file:
        while chunk := packed.read(CHUNK):
            count += len(chunk)
            if count > member.file_size:
                break
            file.write(chunk)
    if count != member.file_size:
        kind = "more" if count > member.file_size else "fewer"
        raise _member_error(
            archive, member, f"has {kind} than the {member.file_size} bytes it declares"
        )


def _member_error(archive: Path, member: zipfile.ZipInfo, problem: str) -> WeightsError:
    return WeightsError(
        f"{archive}: member {member.orig_filename!r} {problem}; "
        "download the archive from its publisher, or unpack it manually if you trust it"
    )
