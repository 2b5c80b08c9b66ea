"""Seeds, and where outside data is found."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

from tests.support import shape_checks
from tests.support.sweeps import pick

if TYPE_CHECKING:
    from elmore.corpus.shards import Corpus

# Of minutes in all; they start other processes, or train. One worker gets all of them, in this
# order, and others take from the end of its list what it has not begun.
LONGEST = ("test_ray.py", "test_package.py", "test_resume.py", "test_guides.py")

for _name, _examples in (("sample", 20), ("full", 100)):
    settings.register_profile(
        _name,
        deadline=None,
        derandomize=True,
        max_examples=_examples,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile(pick("sample", "full"))


def pytest_sessionstart(session: pytest.Session) -> None:
    from elmore.model import native

    native.available()  # built once, in the user's cache, before tests set caches of their own
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:  # workers have none
        session.config.pluginmanager.register(_AtOnce(terminal))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the files of the longest tests, so that no worker waits for them at the end."""
    places = {name: index for index, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


class _AtOnce:
    """Tells of what fails when it does: a run that is ended from outside has no summary."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            told = f"\n{report.nodeid}\n{report.longreprtext[-500:]}\n"
            self._terminal.write(told, flush=True)


shape_checks.install()  # before anything of elmore is imported


def pytest_runtest_setup() -> None:
    shape_checks.start_test()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def use_threads() -> Iterator[Callable[[int], None]]:
    """What sets the number of threads for this test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The published tiny models with their reference vectors."""
    folder = os.environ.get("ELMORE_FIXTURES")
    if not folder:
        pytest.skip("ELMORE_FIXTURES is not set: the published fixtures are not here")
    return Path(folder)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> "Corpus":
    """A prepared text of some 3,000 tokens, with validation text in which some words are new."""
    from tests.support import toy_corpus  # it needs torch's friends, which most tests do without

    return toy_corpus.prepare_corpus(
        tmp_path_factory.mktemp("corpus"),
        "shards",
        toy_corpus.sentences(400),
        toy_corpus.sentences(60, seed=1, rare=("xylophone", "Zürich")),
        min_count=6,
    )


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many sentences each use of the biLM was for."""
    from elmore.embed.embedder import Embedder

    counted: list[int] = []
    stream = Embedder.stream

    def counting(self, texts, **choices):
        texts = list(texts)
        counted.append(len(texts))
        return stream(self, texts, **choices)

    monkeypatch.setattr(Embedder, "stream", counting)
    return counted
