"""What is built on the inside of uvicorn, and what happens where that has changed."""

import sys
import tomllib
from pathlib import Path

import pytest

from elmore.errors import MissingPackageError
from elmore.serve import protocol
from elmore.serve.limits import Limits
from tests.support.cli_runner import run_elmore
from tests.support.live_server import forget_serve

ROOT = Path(__file__).parents[2]


def test_the_tested_range_of_uvicorn_is_what_the_package_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert protocol.UVICORN in project["optional-dependencies"]["serve"]


def test_a_uvicorn_that_lacks_something_is_refused_by_name(monkeypatch):
    class Changed:
        def __init__(self):
            self.conn = self.cycle = None

    monkeypatch.setattr(protocol, "H11Protocol", Changed)
    with pytest.raises(MissingPackageError, match=r"has no H11Protocol.app_state: pip install"):
        protocol.bind_protocol(Limits(), lambda: False)


def test_an_incompatible_uvicorn_is_reported_in_one_sentence(monkeypatch):
    forget_serve(monkeypatch)
    monkeypatch.setitem(sys.modules, "uvicorn.protocols.http.h11_impl", None)
    result = run_elmore("serve", "no-such-model")
    assert result.code == 1
    assert result.err.count("\n") == 1
    assert f"pip install '{protocol.UVICORN}'" in result.err
