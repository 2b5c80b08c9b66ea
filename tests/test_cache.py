from pathlib import Path

from elmore import cache


def test_the_cache_is_where_the_environment_says(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.delenv("ELMORE_CACHE", raising=False)
    assert cache.cache_dir() == Path("/home/ada/.cache/elmore")
    monkeypatch.setenv("XDG_CACHE_HOME", "/scratch")
    assert cache.cache_dir() == Path("/scratch/elmore")
    monkeypatch.setenv("ELMORE_CACHE", "~/models")
    assert cache.cache_dir() == Path("/home/ada/models")
