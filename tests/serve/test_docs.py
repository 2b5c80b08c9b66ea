"""The commands of docs/serve.md are run, against a server of a tiny model."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/serve.md").read_text(encoding="utf-8")
LINES = [
    line
    for block in re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    for line in block.splitlines()
]


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_the_commands_of_the_page_run(client, tmp_path):
    assert len(LINES) > 5
    for line in LINES:
        here = line.replace("http://127.0.0.1:8000", client.url)
        here = here.replace("python ", f"{sys.executable} ")
        done = subprocess.run(here, shell=True, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, line
        if "-o vectors" not in line and "python" not in line:
            assert json.loads(done.stdout)
    assert done.stdout == "(2, 12)\n"


def test_the_limits_on_the_page_are_those_of_the_code():
    from elmore.embed.device import CPU, GPU
    from elmore.serve import schemas
    from elmore.serve.limits import Limits
    from elmore.serve.send_budget import SendBudget

    limits = Limits()
    for number in (
        limits.batch_tokens,
        limits.tokens,
        limits.queue_tokens,
        schemas.MAX_TOKENS,
        schemas.MAX_CHARACTERS,
        limits.texts,
    ):
        assert f"{number:,}" in PAGE
    for seconds in (
        limits.header_seconds,
        limits.body_seconds,
        limits.response_seconds,
        limits.send_seconds,
        limits.delivery_seconds,
        limits.idle_seconds,
        limits.shutdown_seconds,
        limits.hang_seconds,
    ):
        assert f" {seconds:g} s" in PAGE
    assert f"{limits.connections} connections" in PAGE
    for device in (CPU, GPU):
        assert re.search(rf"\b{device.max_concurrent}\b", PAGE)
        assert f"{device.cache_megabytes:,} MB" in PAGE
    assert limits.body_bytes == 1 << 20
    assert limits.unsent_bytes == 256 << 20
    assert SendBudget(limits.unsent_bytes).largest == 224 << 20
    assert limits.shutdown_seconds == limits.response_seconds + limits.send_seconds


def test_every_route_on_the_page_is_there(client):
    paths = client.get("/openapi.json").json["paths"]
    named = set(re.findall(r"^\| `(?:GET|POST) (/[\w/{}]+)`", PAGE, flags=re.MULTILINE))
    assert named == set(paths)
