"""Download a file into a folder once, and verify it on later use.

Beside `NAME` the folder has `NAME.sha256` (recorded at the first download, in the format of
sha256sum) and `NAME.lock` (held during the download), and until NAME is complete `NAME.part` with
`NAME.part.json`: the address, version and length of the file. A download is resumed only if the
server confirms that it still has that version.
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
"""Called with the bytes received so far and the total length, None if unknown."""

TIMEOUT = 30.0  # seconds without data after which a connection counts as dropped
TRIES = 5
PAUSE = 1.0  # seconds between tries
CHUNK = 1 << 16
ADDRESS = re.compile(r"(?i:https?://[^/?#]+|file:)/(?:[^?#]*/)?([^/?#]*)")
PLAIN_NAME = re.compile(r"\w[\w .,+@~=()-]{0,149}")
OWN_ENDINGS = (".part", ".part.json", ".sha256", ".lock")

log = logging.getLogger(__name__)


class _DroppedError(Exception):
    """The transfer ended early; another try may resume it."""


@dataclass(frozen=True)
class _Partial:
    """A partial download: its size, the version of the file, and the total length."""

    size: int = 0
    version: str | None = None
    total: int | None = None


def fetch(
    url: str, folder: Path, *, sha256: str | None = None, progress: Progress | None = None
) -> Path:
    """Return the path of the file at `url` in `folder`, after downloading it if needed.

    The last part of the address is the file name, so two addresses with the same last part need two
    folders. The sha256 is checked each time: against `sha256`, else against the one recorded at the
    first download. Several processes may call this at once.

    Raises:
        WeightsError: The file cannot be downloaded or written, or its sha256 differs.
    """
    path = folder / file_name(url)
    try:
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with lock.acquire(_beside(path, ".lock"), wait=True):
                if not path.exists():  # another process may have downloaded it meanwhile
                    log.info("downloading %s to %s", url, path)
                    _download(url, path, progress)
                    _accept(url, path, sha256)
                    return path
        _check_cached(path, sha256)
    except OSError as error:  # of the disk; network errors are handled below
        raise WeightsError(
            f"{path}: {_reason(error)}; check disk space and permissions of {folder}, then try "
            "again: the partial download is kept"
        ) from error
    return path


def file_name(url: str) -> str:
    """Return the file name of an address: its last part, which must be a plain name."""
    address = ADDRESS.match(url)
    name = unquote(address[1]) if address else ""
    if not PLAIN_NAME.fullmatch(name) or name.endswith(OWN_ENDINGS):
        raise WeightsError(
            f"{url!r} is not an http, https or file address that ends in a plain file name; "
            "download the file manually and pass its path"
        )
    return name


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _download(url: str, path: Path, progress: Progress | None) -> None:
    """Download to `path`.part, resuming after dropped connections."""
    for left in reversed(range(TRIES)):
        try:
            _transfer(url, path, progress)
            return
        except _DroppedError as error:
            log.warning("%s: %s, %d tries left", url, error, left)
            if not left:
                hint = "the partial download is kept for the next try"
                raise _unreachable(url, path, f"{error} at try {TRIES}, {hint}") from error
        time.sleep(PAUSE)


def _transfer(url: str, path: Path, progress: Progress | None) -> None:
    part = _beside(path, ".part")
    partial = _find_partial(url, part)
    if partial.size and partial.size == partial.total:
        return
    headers = {}
    if partial.version:
        headers = {"Range": f"bytes={partial.size}-", "If-Range": partial.version}
    with _open(url, path, headers) as answer:
        status, kind = answer.status, answer.headers.get_content_type()
        if headers and status == 206:
            resumed = _resume(answer.headers, partial)
            partial = resumed or _restart(part, "the file has changed")
        elif (status == 200 and kind != "text/html") or url[:5].lower() == "file:":
            partial = _start(url, part, answer.headers)
        else:  # a dead address often leads to an HTML page
            raise _unreachable(url, path, f"the server answered {status} with {kind}")
        _copy(answer, part, partial, progress)


def _find_partial(url: str, part: Path) -> _Partial:
    """Return a download that can be resumed: its version is known, or it is complete."""
    try:
        size = part.stat().st_size
        note = strict_json.loads(_beside(part, ".json").read_text("utf-8"))
        version, total = note["version"], note["total"]
        fits = note["url"] == url and (total is None or size <= total)
        fits = fits and isinstance(version, str | None) and type(total) in (int, type(None))
    except (OSError, ValueError, TypeError, KeyError):
        return _Partial()
    usable = size and fits and (version or size == total)
    return _Partial(size, version, total) if usable else _Partial()


def _start(url: str, part: Path, headers: Message) -> _Partial:
    """Create an empty part, and write down the version of the file."""
    part.write_bytes(b"")  # first: old bytes must never be beside a new note
    etag, length = headers.get("ETag", ""), headers.get("Content-Length", "")
    version = (
        etag if etag.startswith('"') else headers.get("Last-Modified")
    )  # a weak ETag (W/"...") does not identify bytes
    total = int(length) if re.fullmatch(r"[0-9]+", length) else None
    note = {"url": url, "version": version, "total": total}
    _beside(part, ".json").write_text(json.dumps(note), "utf-8")
    return _Partial(0, version, total)


def _resume(headers: Message, partial: _Partial) -> _Partial | None:
    """Return the part that an answer continues; None if it does not (If-Range may be ignored)."""
    match = re.fullmatch(r"bytes ([0-9]+)-[0-9]+/([0-9]+|\*)", headers.get("Content-Range", ""))
    if not match or int(match[1]) != partial.size:
        return None
    field = "ETag" if (partial.version or "").startswith('"') else "Last-Modified"
    total = partial.total if match[2] == "*" else int(match[2])
    if headers.get(field, partial.version) != partial.version:
        return None
    if partial.total not in (None, total):
        return None
    return _Partial(partial.size, partial.version, total)


def _copy(answer: Any, part: Path, partial: _Partial, progress: Progress | None) -> None:  # noqa: ANN401 -- urllib's answers have no common class
    done = partial.size
    with part.open("ab") as file:
        while chunk := _read_chunk(answer):
            file.write(chunk)
            done += len(chunk)
            if progress:
                progress(done, partial.total)
        file.flush()
        os.fsync(file.fileno())
    if partial.total is not None and done != partial.total:
        raise _DroppedError(f"the connection ended after {done} of {partial.total} bytes")


def _read_chunk(answer: Any) -> bytes:  # noqa: ANN401 -- urllib's answers have no common class
    try:
        return answer.read(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _DroppedError(f"the connection dropped: {_reason(error)}") from error


def _open(url: str, path: Path, headers: dict[str, str]) -> Any:  # noqa: ANN401 -- urllib's answers have no common class
    try:
        request = Request(url, headers={"User-Agent": "elmore", **headers})  # noqa: S310 -- file_name checked the scheme
        return build_opener().open(request, timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code == 416 and headers:
            _restart(_beside(path, ".part"), "the file on the server is shorter now")
        status = http.client.responses.get(error.code, "")
        raise _unreachable(url, path, f"the server answered {error.code} {status}") from error
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
    """Check the sha256 of a complete part, record it, and rename the part."""
    part = _beside(path, ".part")
    found, expected = (
        checksums.file_sha256(part),
        (sha256 or checksums.read_record(path) or "").lower(),
    )
    if expected and found != expected:
        _discard(part)
        action = "pass its sha256" if sha256 else f"delete {checksums.record_path(path)}"
        raise WeightsError(
            f"{url}: {path.name} has sha256 {found}, expected {expected}; try again, or {action} "
            "to accept the new file"
        )
    # First the record, so that a complete file always has one, also after a kill
    checksums.write_record(path, found)
    atomic.replace(part, path)
    _discard(part)
    log.info("%s has sha256 %s", path, found)


def _check_cached(path: Path, sha256: str | None) -> None:
    recorded = checksums.read_record(path)
    found, expected = checksums.file_sha256(path), (sha256 or recorded or "").lower()
    if expected and found != expected:
        raise WeightsError(
            f"{path}: the cached file is damaged, its sha256 is {found}, expected {expected}; "
            "delete it to download it again"
        )
    if recorded is None:  # the user put it there
        with contextlib.suppress(OSError):  # a cache may be read-only
            checksums.write_record(path, found)


def _reason(error: object) -> str:
    text = error.strerror if isinstance(error, OSError) else None
    return " ".join((text or str(error) or type(error).__name__).split())


def _unreachable(url: str, path: Path, reason: str) -> WeightsError:
    return WeightsError(
        f"{url} cannot be downloaded: {reason}; the address may be dead: download the file "
        f"manually and pass its path, or save it as {path}"
    )
