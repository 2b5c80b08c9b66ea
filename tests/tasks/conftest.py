import pytest

from tests.support import toy_tasks


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
