import pytest

from elmore.errors import ConfigError
from elmore.tasks.embedding import spec
from elmore.tasks.embedding.spec import EmbedderSpec
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
def test_a_spec_survives_a_round_trip(text, glove, elmo):
    result = spec.parse_spec(text)
    assert result == EmbedderSpec(glove=glove, elmo=elmo)
    assert spec.parse_spec(str(result)) == result


@pytest.mark.parametrize("text", ["", "glove", "glove:", "elmo small", "bert:x", "none+elmo:", "x"])
def test_anything_else_is_refused_in_one_sentence(text):
    with pytest.raises(ConfigError, match=r"^embedder '.*': expected none, glove:FILE, elmo:MODEL"):
        spec.parse_spec(text)


def test_paths_are_found_from_anywhere(tmp_path, monkeypatch, bilm):
    monkeypatch.chdir(tmp_path)
    result = spec.parse_spec("glove:vectors.txt+elmo:bilm")
    assert result == EmbedderSpec(glove=str(tmp_path / "vectors.txt"), elmo=str(bilm))


def test_changed_word_vectors_are_detected(tmp_path, vectors, bilm):
    named = spec.parse_spec(f"glove:{vectors}+elmo:{bilm}")
    digests = spec.open_embedders(named, device="cpu").digests
    where = tmp_path / "config.json"
    assert spec.reopen_embedders(named, digests, where, device="cpu").elmo is not None
    vectors.write_text(vectors.read_text().replace(".", "", 1))
    with pytest.raises(
        ConfigError, match=r"vectors\.txt is not the one this task was trained with"
    ):
        spec.reopen_embedders(named, digests, where, device="cpu")
    vectors.unlink()
    with pytest.raises(
        ConfigError, match=r"config\.json: an embedder of this task cannot be opened"
    ):
        spec.reopen_embedders(named, digests, where, device="cpu")


def test_another_model_in_the_same_place_is_noticed(tmp_path, bilm):
    named = spec.parse_spec(f"elmo:{bilm}")
    digests = spec.open_embedders(named, device="cpu").digests
    for path in toy_tasks.bilm(tmp_path / "other", seed=1).iterdir():
        path.replace(bilm / path.name)
    with pytest.raises(ConfigError, match="is not the one this task"):
        spec.reopen_embedders(named, digests, tmp_path, device="cpu")
