import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import toy_tasks
from tests.support.toy_tasks import Trained

EMBEDDERS = {
    "none": "none",
    "glove": "glove:{place}/vectors.txt",
    "elmo": "elmo:{place}/bilm",
    "both": "glove:{place}/vectors.txt+elmo:{place}/bilm",
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The user's cache, for the time of a test."""
    monkeypatch.setenv("ELMORE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def bilm(tmp_path):
    return toy_tasks.bilm(tmp_path / "bilm")


@pytest.fixture
def vectors(tmp_path):
    return toy_tasks.vectors(tmp_path / "vectors.txt")


@pytest.fixture(scope="session")
def shared_run(tmp_path_factory) -> Callable[..., Trained]:
    """Return a function that trains a task with an embedder once per session: do not change it."""
    path = tmp_path_factory.mktemp("shared-runs")
    toy_tasks.vectors(path / "vectors.txt")
    toy_tasks.bilm(path / "bilm")
    trained: dict[tuple[str, str], Trained] = {}

    def run(name: str = "ner", embedder: str = "none") -> Trained:
        if (name, embedder) not in trained:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("ELMORE_CACHE", str(path / "cache"))
                spec = EMBEDDERS[embedder].format(place=path)
                trained[name, embedder] = toy_tasks.train(
                    path, name, embedder=spec, out=f"{name}-{embedder}"
                )
        return trained[name, embedder]

    return run


@pytest.fixture
def copied_run(shared_run, tmp_path) -> Callable[..., tuple[Path, Path]]:
    """Return a function that copies a shared run: its data and its run folder, free to change."""

    def copy(name: str = "ner", embedder: str = "none") -> tuple[Path, Path]:
        run = shared_run(name, embedder)
        data = Path(shutil.copy(run.data, tmp_path / f"{name}.txt"))
        return data, Path(shutil.copytree(run.out, tmp_path / "run"))

    return copy
