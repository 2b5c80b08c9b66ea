import pytest

from elmore.errors import ConfigError
from elmore.tasks.embedding import spec
from elmore.tasks.embedding.spec import Specification
from tests.support import toy_tasks


@pytest.mark.parametrize(
    ("text", "glove", "elmo"),
    [
        ("none", None, None),
        ("glove:/a/b.txt", "/a/b.txt", None),
        ("elmo:small", None, "small"),
        ("elmo:", None, ""),
        ("elmo", None, ""),
        ("glove:/a/b.txt+elmo:small", "/a/b.txt", "small"),
        ("glove:/a/b.txt+elmo:", "/a/b.txt", ""),
        ("glove:/a/b.txt+elmo", "/a/b.txt", ""),
        ("glove:/a+b/c.txt", "/a+b/c.txt", None),
        ("glove:/a+elmore/c.txt", "/a+elmore/c.txt", None),
        ("word2vec:/a/b.bin", "/a/b.bin", None),
        ("fasttext:/a/b.vec+elmo:small", "/a/b.vec", "small"),
    ],
)
def test_what_may_be_written(text, glove, elmo):
    found = spec.parse(text)
    assert found == Specification(glove=glove, elmo=elmo)
    assert spec.parse(str(found)) == found


@pytest.mark.parametrize("text", ["", "glove", "glove:", "elmo small", "bert:x", "none+elmo:", "x"])
def test_anything_else_is_refused_in_one_sentence(text):
    with pytest.raises(ConfigError, match=r"^embedder '.*': expected none, glove:FILE, elmo:MODEL"):
        spec.parse(text)


def test_paths_are_found_from_anywhere(tmp_path, monkeypatch, bilm):
    monkeypatch.chdir(tmp_path)
    found = spec.parse("glove:vectors.txt+elmo:bilm")
    assert found == Specification(glove=str(tmp_path / "vectors.txt"), elmo=str(bilm))


def test_what_a_run_was_trained_with_is_known_again(tmp_path, vectors, bilm):
    named = spec.parse(f"glove:{vectors}+elmo:{bilm}")
    digests = spec.opened(named, device="cpu").digests
    where = tmp_path / "config.json"
    assert spec.reopened(named, digests, where, device="cpu").elmo is not None
    vectors.write_text(vectors.read_text().replace(".", "", 1))
    with pytest.raises(ConfigError, match=r"vectors\.txt is not what it was when this run was"):
        spec.reopened(named, digests, where, device="cpu")
    vectors.unlink()
    with pytest.raises(
        ConfigError, match=r"config\.json: what it was trained with cannot be opened"
    ):
        spec.reopened(named, digests, where, device="cpu")


def test_another_model_in_the_same_place_is_noticed(tmp_path, bilm):
    named = spec.parse(f"elmo:{bilm}")
    digests = spec.opened(named, device="cpu").digests
    for path in toy_tasks.bilm(tmp_path / "other", seed=1).iterdir():
        path.replace(bilm / path.name)
    with pytest.raises(ConfigError, match="is not what it was"):
        spec.reopened(named, digests, tmp_path, device="cpu")
