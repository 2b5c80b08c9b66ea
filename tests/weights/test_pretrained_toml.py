import re
import tomllib
from importlib import resources
from pathlib import PurePosixPath
from urllib.parse import urlsplit

import pytest

MODELS = tomllib.loads(
    resources.files("elmore.weights").joinpath("pretrained.toml").read_text("utf-8")
)
PACKAGES = [name for name, entry in MODELS.items() if "package" in entry]
FILES = [name for name in MODELS if name not in PACKAGES]
MANY_LANGS = {name: entry for name, entry in MODELS.items() if name.startswith("many-langs-")}


def test_every_published_model_is_listed():
    named = {
        "english-large",
        "small",
        "medium",
        "original",
        "original-5.5B",
        "pubmed",
        "portuguese-wikipedia",
        "portuguese-brwac",
        "japanese",
        "seqvec",
    }
    assert MODELS.keys() - MANY_LANGS.keys() == named
    assert len(MANY_LANGS) == 44


@pytest.mark.parametrize("name", MODELS)
def test_an_entry_has_its_keys_and_no_other(name):
    entry = MODELS[name]
    home = "package" if name in PACKAGES else "files"
    assert entry.keys() - {"sha256"} == {"language", "licence", "data", home}
    for key in ("language", "licence", "data"):
        assert entry[key]
        assert entry[key] == entry[key].strip()
    assert entry["licence"] in ("Apache-2.0", "CC-BY-SA-4.0", "MIT", "see publisher")


def test_a_package_is_called_after_its_model():
    assert {name: MODELS[name]["package"] for name in PACKAGES} == {
        "english-large": "elmore-model-english-large"
    }


@pytest.mark.parametrize("name", FILES)
def test_the_files_of_an_entry_are_options_and_weights_or_one_zip(name):
    addresses = [urlsplit(url) for url in MODELS[name]["files"]]
    assert all(parts.scheme in ("http", "https") and parts.hostname for parts in addresses)
    endings = [PurePosixPath(parts.path).suffix for parts in addresses]
    assert endings in ([".json", ".hdf5"], [".zip"])


@pytest.mark.parametrize("name", FILES)
def test_a_sha256_where_given_is_one_per_file(name):
    sums = MODELS[name].get("sha256")
    assert sums is None or len(sums) == len(MODELS[name]["files"])
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in sums or [])


def test_names_are_plain_and_differ_by_more_than_case():
    assert all(re.fullmatch(r"[a-z][a-zA-Z0-9.-]*", name) for name in MODELS)
    assert len({name.lower() for name in MODELS}) == len(MODELS)


def test_no_two_models_share_a_weight_file():
    weights = [MODELS[name]["files"][-1] for name in FILES]
    assert len(set(weights)) == len(weights)


def test_many_langs_are_named_by_language_code_and_cover_their_numbers():
    assert all(re.fullmatch(r"many-langs-[a-z]{2,3}", name) for name in MANY_LANGS)
    assert len({entry["language"] for entry in MANY_LANGS.values()}) == len(MANY_LANGS)
    numbers = {int(PurePosixPath(entry["files"][0]).stem) for entry in MANY_LANGS.values()}
    assert numbers == set(range(136, 180))


@pytest.mark.parametrize(
    ("code", "language", "number"),
    [("en", "English", 144), ("nl", "Dutch", 164), ("nb", "Norwegian Bokmål", 165)],
)
def test_a_language_code_leads_to_its_language(code, language, number):
    entry = MODELS[f"many-langs-{code}"]
    assert entry["language"] == language
    assert entry["files"] == [f"http://vectors.nlpl.eu/repository/11/{number}.zip"]
