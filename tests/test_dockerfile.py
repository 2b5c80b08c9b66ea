"""The container: what its Dockerfile promises, and its steps followed where no daemon runs."""

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from elmore.cli.serve import serve
from tests.support import dockerfile
from tests.support.sweeps import pick

ROOT = Path(__file__).parents[1]
STAGES = dockerfile.read(ROOT / "Dockerfile")
LAST = STAGES[-1]
TOKEN = "a-long-secret"


def test_it_is_slim_and_does_not_run_as_root():
    assert dockerfile.value(LAST, "FROM").endswith("-slim")
    user, group = dockerfile.value(LAST, "USER").split(":")
    assert int(user) > 0  # a number: orchestrators check that it is not 0
    assert int(group) > 0


def test_what_it_copies_is_there_and_is_all_that_is_sent_to_the_daemon():
    patterns = (ROOT / ".dockerignore").read_text("utf-8").split()
    copies = [text for stage in STAGES for name, text in stage if name == "COPY"]
    copied = [path for text in copies if "--from" not in text for path in text.split()[:-1]]
    assert "elmore" in copied
    for path in copied:
        assert (ROOT / path).exists(), path
        assert not dockerfile.ignored(path, patterns), path
    assert not dockerfile.ignored("elmore/weights/bundled/model.safetensors", patterns)
    for path in ("tests/test_dockerfile.py", ".git/config", "elmore/__pycache__/x.pyc"):
        assert dockerfile.ignored(path, patterns), path


def test_the_server_listens_where_the_health_check_asks():
    entry = json.loads(dockerfile.value(LAST, "ENTRYPOINT"))
    assert entry[:2] == ["elmore", "serve"]
    assert entry[2:] == ["--host", "0.0.0.0"]
    port = dockerfile.value(LAST, "EXPOSE")
    assert f"http://127.0.0.1:{port}/health" in dockerfile.health_command(LAST)[-1]
    assert inspect.signature(serve).parameters["port"].default == int(port)


def test_the_health_check_fails_where_nothing_listens():
    _, *arguments = dockerfile.health_command(LAST)
    arguments[-1] = arguments[-1].replace(":8000", ":9")
    assert subprocess.run([sys.executable, *arguments], capture_output=True).returncode == 1


START = """
python -c {loopback}
setpriv --reuid {user} --regid {group} --clear-groups {entry} 2>/tmp/log & server=$!
until {health} 2>/dev/null; do sleep 1; kill -0 $server || {{ cat /tmp/log; exit 1; }}; done
echo "user $(stat -c %u /proc/$server)"
grep VmRSS /proc/$server/status
python -c {ask}
kill -TERM $server
wait $server && echo ended well
"""
ASK = f"""
import json, urllib.request
from pathlib import Path
body = json.dumps({{"model": "english", "input": "It works ."}}).encode()
head = {{"Authorization": "Bearer {TOKEN}", "Content-Type": "application/json"}}
asked = urllib.request.Request("http://127.0.0.1:8000/v1/embeddings", body, head)
print("numbers", len(json.load(urllib.request.urlopen(asked))["data"][0]["embedding"]))
from elmore import native_build
sources = Path(native_build.__file__).parent / "model" / "native"
print("native", (sources / native_build.LIBRARY).is_file(), native_build.why_missing(sources))
"""


@pytest.mark.timeout(1800)
@pytest.mark.skipif(not pick(False, True), reason="pip takes a minute: ELMORE_FULL=1 runs it")
def test_its_steps_followed_in_a_clean_root_folder_end_in_a_server(tmp_path):
    try_out = ["unshare", "--mount", "--pid", "--net", "--fork", "chroot", "/", "true"]
    if subprocess.run(try_out, capture_output=True).returncode:
        pytest.skip("no namespaces and chroot for this user")
    command = [sys.executable, "-m", "pip", "config", "list"]
    configured = subprocess.run(command, capture_output=True, text=True).stdout
    named = {Path(path) for path in re.findall(r"(?:file://|')(/[^\s'/]+/[^\s'/]+)", configured)}
    mounts = sorted(path for path in named if path.is_dir())
    ours = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    image = dockerfile.build(ROOT, tmp_path, mounts=mounts, environment=ours)
    image.mounts = image.mounts[:1]  # what pip reads is not in the image
    user, group = dockerfile.value(LAST, "USER").split(":")
    image.environment["ELMORE_TOKEN"] = TOKEN
    script = START.format(
        loopback=shlex.quote(dockerfile.LOOPBACK),
        user=user,
        group=group,
        entry=shlex.join(json.loads(dockerfile.value(LAST, "ENTRYPOINT"))),
        health=shlex.join(dockerfile.health_command(LAST)),
        ask=shlex.quote(ASK),
    )
    done = image.run(script, alone=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"user {user}\n" in done.stdout
    assert "numbers 256" in done.stdout
    assert "native True None" in done.stdout
    assert "ended well" in done.stdout
