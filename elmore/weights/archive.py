"""Unpack a zip of weights without trusting it.

An archive comes from an address that anybody may hold by now. What its members are called and how
large they say they are is judged before a byte is written; how large they turn out to be, while
they are written. They are written aside and moved into place at the end, so a folder is complete
or absent.
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
"""How many times its own size an archive may grow, above `FREE_BYTES`: weights hardly shrink."""
FREE_BYTES = 100 << 20
CHUNK = 1 << 20

DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    RuntimeError,  # NotImplementedError too: a compression zipfile does not know
    ValueError,
    OverflowError,
)


def is_zip(path: Path) -> bool:
    """Whether the file begins as a zip does; a truncated one still is one."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def unpack(archive: Path, into: Path) -> None:
    """Unpack all of `archive` into the folder `into`, which must be absent or empty; or nothing."""
    try:
        with atomic.folder(into) as aside, zipfile.ZipFile(archive) as source:
            for member in _judged(archive, source.infolist()):
                _write(archive, source, member, aside)
    except WeightsError:
        raise
    except ElmoreError as error:
        raise WeightsError(f"{archive} cannot be unpacked: {error}") from error
    except OSError as error:
        raise WeightsError(
            f"{archive} cannot be unpacked into {into}: {error.strerror or error}; "
            "see that there is room and that you may write there, or get the archive again"
        ) from error
    except DAMAGE as error:
        raise WeightsError(
            f"{archive} is damaged or cut short: {error}; delete it and get it again"
        ) from error


def find(folder: Path) -> Path:
    """Where the files are: many an archive wraps them in a folder, or in folders."""
    while True:
        entries = list(folder.iterdir())
        if len(entries) != 1 or entries[0].is_symlink() or not entries[0].is_dir():
            return folder
        folder = entries[0]


def _judged(archive: Path, members: list[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
    """The members to write, or a refusal of the whole archive."""
    if len(members) > MAX_MEMBERS:
        raise WeightsError(
            f"{archive} has {len(members)} members, more than the {MAX_MEMBERS} allowed; "
            "unpack it by hand if you trust it"
        )
    wanted = [member for member in members if not _is_clutter(member)]
    total = sum(member.file_size for member in wanted)
    size = archive.stat().st_size
    if total > MAX_BYTES or total > max(FREE_BYTES, MAX_RATIO * size):
        raise WeightsError(
            f"{archive} has {size} bytes and would unpack to {total}, more than weights do; "
            "unpack it by hand if you trust it"
        )
    seen = set()
    for member in wanted:
        key = str(PurePosixPath(member.filename)).casefold()  # some disks do not tell case apart
        if problem := _problem(member) or ("is there twice" if key in seen else ""):
            raise _refusal(archive, member, problem)
        seen.add(key)
    return wanted


def _is_clutter(member: zipfile.ZipInfo) -> bool:
    """What a Mac adds to every archive."""
    parts = PurePosixPath(member.filename).parts
    return parts[:1] == ("__MACOSX",) or parts[-1:] == (".DS_Store",)


def _problem(member: zipfile.ZipInfo) -> str:
    name = member.orig_filename  # zipfile cuts the other at a NUL and turns backslashes on Windows
    kind = stat.S_IFMT(member.external_attr >> 16)
    if name.startswith("/"):
        return "has an absolute path"
    if ".." in PurePosixPath(name).parts:
        return "leads out of the folder with '..'"
    if not PurePosixPath(name).parts or re.search(r"[\\\x00-\x1f\x7f]", name):
        return "has a backslash, a control character or nothing in its name"
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
    greedy = copy.copy(member)
    greedy.file_size += 1  # zipfile silently stops at this size: one more shows what it would hide
    count = 0
    with source.open(greedy) as packed, target.open("xb") as file:
        while chunk := packed.read(CHUNK):
            count += len(chunk)
            if count > member.file_size:
                break
            file.write(chunk)
    if count != member.file_size:
        kind = "more" if count > member.file_size else "fewer"
        raise _refusal(archive, member, f"holds {kind} than the {member.file_size} bytes it says")


def _refusal(archive: Path, member: zipfile.ZipInfo, problem: str) -> WeightsError:
    return WeightsError(
        f"{archive}: member {member.orig_filename!r} {problem}, weights have no such member; "
        "get the archive from its publisher, or unpack it by hand if you trust it"
    )
