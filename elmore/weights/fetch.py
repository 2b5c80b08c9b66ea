"""Bring a file from its address into a folder once, and know it again afterwards.

Beside `NAME` the folder holds `NAME.sha256` (as sha256sum writes it: what NAME was when it first
came) and `NAME.lock` (held while it is brought), and until NAME is complete `NAME.part` with
`NAME.part.json`: the address, the version and the length that the part belongs to. A part is
carried on only when the server says that it still has that version.
"""

import contextlib
import http.client
import json
import logging
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any, NoReturn
from urllib.error import HTTPError, URLError
from urllib.parse import unquote
from urllib.request import Request, build_opener

from elmore import atomic, lock, strict_json
from elmore.errors import WeightsError
from elmore.weights import checksums

Progress = Callable[[int, int | None], None]
"""Called with the bytes that are here so far and the length of the whole where it is known."""

TIMEOUT = 30.0  # seconds without a byte after which a connection counts as dropped
TRIES = 5
PAUSE = 1.0  # seconds between two tries
CHUNK = 1 << 16
ADDRESS = re.compile(r"(?i:https?://[^/?#]+|file:)/(?:[^?#]*/)?([^/?#]*)")
PLAIN_NAME = re.compile(r"\w[\w .,+@~=()-]{0,149}")
OWN_ENDINGS = (".part", ".part.json", ".sha256", ".lock")

log = logging.getLogger(__name__)


class _DroppedError(Exception):
    """The transfer ended early; another try may carry it on."""


@dataclass(frozen=True)
class _Kept:
    """What an earlier transfer left behind: how much, of which version, of how long a whole."""

    size: int = 0
    version: str | None = None
    total: int | None = None


def fetch(
    url: str, folder: Path, *, sha256: str | None = None, progress: Progress | None = None
) -> Path:
    """The file at `url` as a file in `folder`, downloaded when it is not there yet.

    It is named by the last part of the address, so two addresses with the same last part need two
    folders. Its sha256 is checked each time: against `sha256`, else against the one recorded when
    the file first came. Safe to call from many processes at once.
    """
    path = folder / file_name(url)
    try:
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with lock.acquire(_beside(path, ".lock"), wait=True):
                if not path.exists():  # while this process waited another may have brought it
                    log.info("downloading %s to %s", url, path)
                    _download(url, path, progress)
                    _accept(url, path, sha256)
                    return path
        _check_cached(path, sha256)
    except OSError as error:  # the network's own were explained where they arose: this is the disk
        raise WeightsError(
            f"{path}: {_reason(error)}; see that {folder} has room and may be written to, "
            "then ask again: what came so far is kept"
        ) from error
    return path


def file_name(url: str) -> str:
    """Give the name a file has in its folder: the last part of the address, if that is plain."""
    address = ADDRESS.match(url)
    name = unquote(address[1]) if address else ""
    if not PLAIN_NAME.fullmatch(name) or name.endswith(OWN_ENDINGS):
        raise WeightsError(
            f"{url!r} is not an http, https or file address that ends in a plain file name; "
            "get the file by hand and pass its path"
        )
    return name


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _download(url: str, path: Path, progress: Progress | None) -> None:
    """Fill `path`.part, carrying on after each dropped connection."""
    for left in reversed(range(TRIES)):
        try:
            _transfer(url, path, progress)
            return
        except _DroppedError as error:
            log.warning("%s: %s, %d tries left", url, error, left)
            if not left:
                kept = "what came so far is kept for the next try"
                raise _unreachable(url, path, f"{error} at try {TRIES}, {kept}") from error
        time.sleep(PAUSE)


def _transfer(url: str, path: Path, progress: Progress | None) -> None:
    part = _beside(path, ".part")
    kept = _kept(url, part)
    if kept.size and kept.size == kept.total:
        return
    ask = {"Range": f"bytes={kept.size}-", "If-Range": kept.version} if kept.version else {}
    with _open(url, path, ask) as answer:
        status, kind = answer.status, answer.headers.get_content_type()
        if ask and status == 206:
            kept = _carry_on(answer.headers, kept) or _restart(part, "the file changed meanwhile")
        elif (status == 200 and kind != "text/html") or url[:5].lower() == "file:":
            kept = _begin(url, part, answer.headers)
        else:  # a dead address often leads to a page that says so
            raise _unreachable(url, path, f"the server answered {status} with {kind}")
        _copy(answer, part, kept, progress)


def _kept(url: str, part: Path) -> _Kept:
    """What can be carried on: nothing unless its version is known, or it is already whole."""
    try:
        size = part.stat().st_size
        note = strict_json.loads(_beside(part, ".json").read_text("utf-8"))
        version, total = note["version"], note["total"]
        fits = note["url"] == url and (total is None or size <= total)
        fits = fits and isinstance(version, str | None) and type(total) in (int, type(None))
    except (OSError, ValueError, TypeError, KeyError):
        return _Kept()
    usable = size and fits and (version or size == total)
    return _Kept(size, version, total) if usable else _Kept()


def _begin(url: str, part: Path, headers: Message) -> _Kept:
    """Start an empty part, and note which version of the file it will hold."""
    part.write_bytes(b"")  # emptied first: old bytes must never stand beside a new note
    etag, length = headers.get("ETag", ""), headers.get("Content-Length", "")
    version = etag if etag.startswith('"') else headers.get("Last-Modified")  # W/"..." is no proof
    total = int(length) if re.fullmatch(r"[0-9]+", length) else None
    note = {"url": url, "version": version, "total": total}
    _beside(part, ".json").write_text(json.dumps(note), "utf-8")
    return _Kept(0, version, total)


def _carry_on(headers: Message, kept: _Kept) -> _Kept | None:
    """The part this answer is the rest of; None if it is not: not every server knows If-Range."""
    place = re.fullmatch(r"bytes ([0-9]+)-[0-9]+/([0-9]+|\*)", headers.get("Content-Range", ""))
    if not place or int(place[1]) != kept.size:
        return None
    field = "ETag" if (kept.version or "").startswith('"') else "Last-Modified"
    total = kept.total if place[2] == "*" else int(place[2])
    if headers.get(field, kept.version) != kept.version or kept.total not in (None, total):
        return None
    return _Kept(kept.size, kept.version, total)


def _copy(answer: Any, part: Path, kept: _Kept, progress: Progress | None) -> None:  # noqa: ANN401 -- urllib's answers share no class
    done = kept.size
    with part.open("ab") as file:
        while chunk := _read(answer):
            file.write(chunk)
            done += len(chunk)
            if progress:
                progress(done, kept.total)
        file.flush()
        os.fsync(file.fileno())
    if kept.total is not None and done != kept.total:
        raise _DroppedError(f"the connection ended after {done} of {kept.total} bytes")


def _read(answer: Any) -> bytes:  # noqa: ANN401 -- urllib's answers share no class
    try:
        return answer.read(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _DroppedError(f"the connection dropped: {_reason(error)}") from error


def _open(url: str, path: Path, ask: dict[str, str]) -> Any:  # noqa: ANN401 -- urllib's answers share no class
    try:
        request = Request(url, headers={"User-Agent": "elmore", **ask})  # noqa: S310 -- file_name checked the scheme
        return build_opener().open(request, timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code == 416 and ask:
            _restart(_beside(path, ".part"), "the file at the server is now shorter")
        said = http.client.responses.get(error.code, "")
        raise _unreachable(url, path, f"the server answered {error.code} {said}") from error
    except (URLError, ValueError, http.client.InvalidURL) as error:
        raise _unreachable(url, path, _reason(getattr(error, "reason", error))) from error
    except (OSError, http.client.HTTPException) as error:
        raise _DroppedError(f"the connection dropped: {_reason(error)}") from error


def _restart(part: Path, why: str) -> NoReturn:
    _discard(part)
    raise _DroppedError(why)


def _discard(part: Path) -> None:
    _beside(part, ".json").unlink(missing_ok=True)
    part.unlink(missing_ok=True)


def _accept(url: str, path: Path, sha256: str | None) -> None:
    """Give a complete part its name, when it is the file that was expected."""
    part = _beside(path, ".part")
    found, expected = checksums.digest(part), (sha256 or checksums.recorded(path) or "").lower()
    if expected and found != expected:
        _discard(part)
        cure = "name its sha256" if sha256 else f"delete {checksums.record_path(path)}"
        raise WeightsError(
            f"{url}: {path.name} came with sha256 {found}, expected was {expected}; "
            f"ask again, or {cure} to accept the new file"
        )
    # The record before the name: what bears the name has a record, also after a kill
    checksums.record(path, found)
    atomic.replace(part, path)
    _discard(part)
    log.info("%s has sha256 %s", path, found)


def _check_cached(path: Path, sha256: str | None) -> None:
    recorded = checksums.recorded(path)
    found, expected = checksums.digest(path), (sha256 or recorded or "").lower()
    if expected and found != expected:
        raise WeightsError(
            f"{path}: the cached file is damaged, its sha256 is {found} and not {expected}; "
            "delete it to download it again"
        )
    if recorded is None:  # it was put there by hand
        with contextlib.suppress(OSError):  # a cache may be read-only
            checksums.record(path, found)


def _reason(error: object) -> str:
    said = error.strerror if isinstance(error, OSError) else None
    return " ".join((said or str(error) or type(error).__name__).split())


def _unreachable(url: str, path: Path, reason: str) -> WeightsError:
    return WeightsError(
        f"{url} cannot be downloaded: {reason}; the address may be dead: get the file by hand "
        f"and pass its path, or put it at {path}"
    )
