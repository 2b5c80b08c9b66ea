import fcntl
import hashlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmore.errors import WeightsError
from elmore.weights import fetch as module
from elmore.weights.fetch import fetch
from tests.support.sweeps import pick
from tests.support.waiting import wait_until

BODY = random.Random(0).randbytes(300_000)
OTHER = random.Random(1).randbytes(300_000)
DATE = "Mon, 05 Feb 2018 12:00:00 GMT"


@dataclass
class Site:
    """What the server serves, how it misbehaves, and what it was asked."""

    body: bytes = BODY
    headers: dict[str, str] = field(default_factory=lambda: {"ETag": '"one"'})
    status: int = 200
    ranges: bool = True
    minds_if_range: bool = True
    shift: int = 0
    """How far from the byte asked for the next partial answer starts."""
    cuts: list[int] = field(default_factory=list)
    """After how many bytes to hang up: one for each request, then no more."""
    stall_after: int | None = None
    asked: list[str | None] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)
    address: str = ""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        site = self.server.site
        site.asked.append(self.headers["Range"])
        site.arrived.set()
        start = self.first_byte(site)
        if start >= len(site.body) > 0:
            return self.answer(416, {"Content-Range": f"bytes */{len(site.body)}"}, b"")
        extra = dict(site.headers)
        if start:
            extra["Content-Range"] = f"bytes {start}-{len(site.body) - 1}/{len(site.body)}"
        return self.answer(206 if start else site.status, extra, site.body[start:])

    def first_byte(self, site):
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "")
        same = self.headers["If-Range"] in (None, *site.headers.values())
        if not asked or not site.ranges or (site.minds_if_range and not same):
            return 0
        shift, site.shift = site.shift, 0
        return int(asked[1]) + shift

    def answer(self, status, headers, body):
        site = self.server.site
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if site.cuts:
            body = body[: site.cuts.pop(0)]
        site.sent.append(len(body))
        if site.stall_after is not None:
            self.wfile.write(body[: site.stall_after])
            self.wfile.flush()
            site.release.wait(60)
            body = body[site.stall_after :] if site.stall_after == 0 else b""
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def start(site: Site) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.site = site
    site.address = f"http://127.0.0.1:{server.server_port}/models/weights.bin"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    return server


def stop(server: ThreadingHTTPServer) -> None:
    server.site.release.set()
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def no_waiting_and_no_proxy(monkeypatch):
    monkeypatch.setattr(module, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def site():
    server = start(Site())
    yield server.site
    stop(server)


def refusal(url: str, folder: Path, **more) -> str:
    with pytest.raises(WeightsError) as caught:
        fetch(url, folder, **more)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert not sentence.endswith(".")
    return sentence


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def leave_a_part(site: Site, folder: Path, size: int) -> None:
    """What a call leaves when its only connection drops after `size` bytes."""
    site.cuts = [size]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TRIES", 1)
        refusal(site.address, folder)
    assert (folder / "weights.bin.part").stat().st_size == size
    site.asked.clear()
    site.sent.clear()


def test_a_file_comes_whole_and_its_sha256_is_recorded(site, tmp_path):
    path = fetch(site.address + "?download=1", tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "weights.bin"
    assert path.read_bytes() == BODY
    assert path.with_name("weights.bin.sha256").read_text() == f"{digest(BODY)}  weights.bin\n"
    assert not list(path.parent.glob("*.part*"))


def test_a_cached_file_is_not_downloaded_again(site, tmp_path):
    fetch(site.address, tmp_path)
    fetch(site.address, tmp_path, sha256=digest(BODY).upper())
    assert site.asked == [None]


def test_progress_grows_to_the_whole_length(site, tmp_path):
    seen = []
    fetch(site.address, tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert seen[-1] == (len(BODY), len(BODY))


def test_a_dropped_connection_is_resumed_within_one_call(site, tmp_path):
    site.cuts = [100_000, 50_000]
    assert fetch(site.address, tmp_path).read_bytes() == BODY
    assert site.asked == [None, "bytes=100000-", "bytes=150000-"]
    assert site.sent == [100_000, 50_000, 150_000]


@settings(max_examples=pick(6, 15), deadline=None)
@given(st.lists(st.integers(0, len(BODY)), max_size=4), st.booleans(), st.booleans())
def test_wherever_the_connection_drops_the_file_is_whole(cuts, ranges, has_version):
    server = start(
        Site(cuts=list(cuts), ranges=ranges, headers={"ETag": '"x"'} if has_version else {})
    )
    try:
        with tempfile.TemporaryDirectory() as folder:
            assert fetch(server.site.address, Path(folder)).read_bytes() == BODY
    finally:
        stop(server)


def test_a_truncated_body_is_an_error_and_its_download_is_resumed_later(site, tmp_path):
    site.cuts = [70_000] + [0] * (module.TRIES - 1)
    sentence = refusal(site.address, tmp_path)
    assert "after 70000 of 300000 bytes" in sentence
    assert site.address in sentence
    assert not (tmp_path / "weights.bin").exists()
    assert fetch(site.address, tmp_path).read_bytes() == BODY
    assert site.asked[-1] == "bytes=70000-"
    assert site.sent[-1] == 230_000


@pytest.mark.parametrize("headers", [{"ETag": '"one"'}, {}])
def test_a_complete_partial_download_needs_no_request(site, tmp_path, monkeypatch, headers):
    site.headers = headers

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "_accept", killed)
        with pytest.raises(KeyboardInterrupt):
            fetch(site.address, tmp_path)
    assert fetch(site.address, tmp_path).read_bytes() == BODY
    assert site.asked == [None]


@pytest.mark.parametrize("minds_if_range", [True, False])
def test_a_part_of_a_changed_file_is_not_spliced(site, tmp_path, minds_if_range):
    leave_a_part(site, tmp_path, 100_000)
    site.body, site.headers, site.minds_if_range = OTHER, {"ETag": '"two"'}, minds_if_range
    assert fetch(site.address, tmp_path).read_bytes() == OTHER
    assert site.asked == (["bytes=100000-"] if minds_if_range else ["bytes=100000-", None])
    assert site.sent[-1] == len(OTHER)


def test_a_part_of_a_file_that_changed_its_length_is_not_spliced(site, tmp_path):
    leave_a_part(site, tmp_path, 100_000)
    site.body = OTHER[:200_000]
    assert fetch(site.address, tmp_path).read_bytes() == OTHER[:200_000]


def test_a_partial_download_longer_than_the_file_is_restarted(site, tmp_path):
    leave_a_part(site, tmp_path, 100_000)
    site.body = OTHER[:50_000]
    assert fetch(site.address, tmp_path).read_bytes() == OTHER[:50_000]
    assert site.asked == ["bytes=100000-", None]


def test_a_partial_response_from_another_offset_is_not_appended(site, tmp_path):
    leave_a_part(site, tmp_path, 100_000)
    site.shift = 10
    assert fetch(site.address, tmp_path).read_bytes() == BODY
    assert site.asked == ["bytes=100000-", None]


def test_a_server_that_ignores_ranges_is_read_from_the_start(site, tmp_path):
    leave_a_part(site, tmp_path, 100_000)
    site.ranges = False
    assert fetch(site.address, tmp_path).read_bytes() == BODY
    assert site.sent == [len(BODY)]


def test_a_partial_download_from_another_address_is_not_resumed(site, tmp_path):
    leave_a_part(site, tmp_path, 100_000)
    assert fetch(site.address.replace("models", "other"), tmp_path).read_bytes() == BODY
    assert site.asked == [None]


def test_a_partial_download_with_a_damaged_record_is_restarted(site, tmp_path):
    leave_a_part(site, tmp_path, 100_000)
    (tmp_path / "weights.bin.part.json").write_text('{"url": ')
    assert fetch(site.address, tmp_path).read_bytes() == BODY
    assert site.asked == [None]


@pytest.mark.parametrize(
    ("headers", "asked"),
    [
        ({"Last-Modified": DATE}, "bytes=100000-"),
        ({"ETag": 'W/"weak"', "Last-Modified": DATE}, "bytes=100000-"),
        ({"ETag": 'W/"weak"'}, None),
        ({}, None),
    ],
)
def test_a_partial_download_is_resumed_only_with_a_proven_version(site, tmp_path, headers, asked):
    site.headers = headers
    leave_a_part(site, tmp_path, 100_000)
    assert fetch(site.address, tmp_path).read_bytes() == BODY
    assert site.asked == [asked]


def test_the_work_of_a_killed_process_is_resumed_by_the_next(site, tmp_path):
    site.stall_after = 200_000
    script = (
        "import sys; from pathlib import Path; from elmore.weights.fetch import fetch\n"
        "fetch(sys.argv[1], Path(sys.argv[2]), progress=lambda done, _: print(done, flush=True))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, site.address, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(module.__file__).parents[2])},
    )
    with child:
        while int(child.stdout.readline()) < 150_000:
            pass
        child.send_signal(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
    kept = (tmp_path / "weights.bin.part").stat().st_size
    assert 100_000 < kept < len(BODY)
    assert not (tmp_path / "weights.bin").exists()
    site.stall_after = None
    site.release.set()
    assert fetch(site.address, tmp_path).read_bytes() == BODY
    assert site.asked == [None, f"bytes={kept}-"]
    assert site.sent[-1] == len(BODY) - kept


def test_a_file_that_another_process_downloads_is_waited_for(site, tmp_path):
    site.stall_after = 0
    paths = []
    callers = [
        threading.Thread(target=lambda: paths.append(fetch(site.address, tmp_path)))
        for _ in range(3)
    ]
    callers[0].start()
    assert site.arrived.wait(60)
    with (tmp_path / "weights.bin.lock").open("a") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for caller in callers[1:]:
        caller.start()
    site.release.set()
    for caller in callers:
        caller.join()
    assert paths == [tmp_path / "weights.bin"] * 3
    assert paths[0].read_bytes() == BODY
    assert site.asked == [None]


def test_another_file_than_the_given_sha256_is_refused_and_not_kept(site, tmp_path):
    sentence = refusal(site.address, tmp_path, sha256=digest(OTHER))
    assert digest(BODY) in sentence
    assert digest(OTHER) in sentence
    assert list(tmp_path.iterdir()) == []


def test_another_file_than_the_recorded_one_is_refused_until_the_record_is_deleted(site, tmp_path):
    fetch(site.address, tmp_path).unlink()
    site.body = OTHER
    record = tmp_path / "weights.bin.sha256"
    sentence = refusal(site.address, tmp_path)
    assert f"delete {record}" in sentence
    assert not (tmp_path / "weights.bin").exists()
    record.unlink()
    assert fetch(site.address, tmp_path).read_bytes() == OTHER


def test_a_damaged_cached_file_is_named_and_comes_again_once_deleted(site, tmp_path):
    path = fetch(site.address, tmp_path)
    path.write_bytes(BODY[:-1] + b"?")
    sentence = refusal(site.address, tmp_path)
    assert sentence.startswith(f"{path}: the cached file is damaged")
    assert "delete it to download it again" in sentence
    path.unlink()
    assert fetch(site.address, tmp_path).read_bytes() == BODY


def test_a_cached_file_must_also_be_the_one_asked_for(site, tmp_path):
    fetch(site.address, tmp_path)
    assert digest(OTHER) in refusal(site.address, tmp_path, sha256=digest(OTHER))


def test_a_file_put_there_by_hand_is_taken_and_recorded(site, tmp_path):
    (tmp_path / "weights.bin").write_bytes(OTHER)
    assert fetch(site.address, tmp_path).read_bytes() == OTHER
    assert site.asked == []
    assert (tmp_path / "weights.bin.sha256").read_text().startswith(digest(OTHER))


@pytest.mark.parametrize("status", [403, 404, 500, 204])
def test_a_refusing_server_is_named_with_what_to_do(site, tmp_path, status):
    site.status = status
    sentence = refusal(site.address, tmp_path)
    assert f"the server answered {status}" in sentence
    assert sentence.startswith(site.address)
    assert f"save it as {tmp_path / 'weights.bin'}" in sentence
    assert len(site.asked) == 1


def test_a_web_page_in_place_of_the_file_is_refused(site, tmp_path):
    site.headers = {"Content-Type": "text/html; charset=utf-8"}
    assert "text/html" in refusal(site.address, tmp_path)
    assert not (tmp_path / "weights.bin").exists()


def test_a_redirect_to_another_kind_of_address_is_refused(site, tmp_path):
    (tmp_path / "secret").write_text("secret")
    site.status, site.headers = 302, {"Location": (tmp_path / "secret").as_uri()}
    assert "cannot be downloaded" in refusal(site.address, tmp_path / "cache")
    assert not (tmp_path / "cache" / "weights.bin").exists()


def test_a_refused_connection_is_named(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        sentence = refusal(f"http://127.0.0.1:{port}/weights.bin", tmp_path)
    assert "Connection refused" in sentence


def test_a_server_that_hangs_up_without_a_word_is_asked_again(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TRIES", 2)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            for _ in range(2):
                server.accept()[0].close()

        answering = threading.Thread(target=hang_up)
        answering.start()
        port = server.getsockname()[1]
        sentence = refusal(f"http://127.0.0.1:{port}/weights.bin", tmp_path)
        answering.join()
    assert "the connection dropped" in sentence
    assert "at try 2" in sentence


def test_a_silent_server_is_given_up(site, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT", 0.1)
    monkeypatch.setattr(module, "TRIES", 2)
    site.stall_after = 0
    assert "timed out" in refusal(site.address, tmp_path)
    wait_until(lambda: len(site.asked) == 2)  # its threads may come to it later


@pytest.mark.parametrize(
    "url",
    [
        "http://nowhere.invalid/w.bin",
        "http://[::1/w.bin",
        "http://h:port/w.bin",
        "http://h/é/w.bin",
    ],
)
def test_an_address_that_leads_nowhere_is_named(tmp_path, url):
    assert refusal(url, tmp_path).startswith(f"{url} cannot be downloaded")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/weights.bin",
        "data:,weights.bin",
        "weights.bin",
        "/etc/passwd",
        "http://host",
        "http://host/",
        "http://host/models/..",
        "http://host/models/%2e%2e",
        "http://host/..%2F..%2Fweights.bin",
        "http://host/%2Fetc%2Fpasswd",
        "http://host/..%5Cweights.bin",
        "http://host/C%3Aweights.bin",
        "http://host/weights%00.bin",
        "http://host/weights%0A.bin",
        "http://host/.hidden",
        "http://host/weights.bin.sha256",
        "http://host/weights.bin.part",
        "",
    ],
)
def test_an_address_of_another_kind_or_without_a_plain_name_is_refused(tmp_path, url):
    assert repr(url) in refusal(url, tmp_path / "cache")
    assert list(tmp_path.iterdir()) == []


def test_a_file_address_is_copied(tmp_path):
    source = tmp_path / "a file.bin"
    source.write_bytes(BODY)
    path = fetch(source.as_uri(), tmp_path / "cache")
    assert path == tmp_path / "cache" / "a file.bin"
    assert path.read_bytes() == BODY


def test_a_missing_file_address_is_named(tmp_path):
    sentence = refusal((tmp_path / "absent.bin").as_uri(), tmp_path / "cache")
    assert "No such file or directory" in sentence


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_named_and_the_part_is_kept(site, tmp_path):
    (tmp_path / "weights.bin.part").symlink_to("/dev/full")
    assert "No space left on device" in refusal(site.address, tmp_path)
    assert (tmp_path / "weights.bin.part").is_symlink()
    assert not (tmp_path / "weights.bin").exists()


def test_a_folder_that_cannot_be_made_is_named(site, tmp_path):
    (tmp_path / "taken").write_text("a file")
    sentence = refusal(site.address, tmp_path / "taken" / "cache")
    assert str(tmp_path / "taken" / "cache") in sentence
