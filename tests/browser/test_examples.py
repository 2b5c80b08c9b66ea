"""The prepared texts of the page show what it says of them, with the bundled model."""

import itertools

import numpy as np
import pytest

import elmore
from tests.support.real_browser import open_without_model
from tests.support.static_server import serve_folder

LAYERS = {"word": 0, "first": 1, "top": 2}


@pytest.fixture(scope="module")
def examples(browser, site):
    with serve_folder(site) as url, open_without_model(browser, url) as page:
        found = page.evaluate("import('./examples.js').then(({EXAMPLES}) => EXAMPLES)")
    return {example["name"]: example for example in found}


@pytest.fixture(scope="module")
def embedder():
    return elmore.load()


def words_of(embedder, example) -> tuple[list[tuple[int, str]], np.ndarray]:
    """Return all words with their sentences, and their vectors as the page compares them."""
    layer = LAYERS[example["layer"]]
    sentences = list(embedder.embed(example["texts"], layers=layer))
    words = [(s, word) for s, each in enumerate(sentences) for word in each.tokens]
    vectors = np.concatenate([each.vectors for each in sentences])
    vectors = vectors - vectors.mean(axis=0)
    return words, vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("name", ["Senses", "Syntax", "Names"])
def test_the_meanings_of_a_word_part(embedder, examples, name):
    example = examples[name]
    words, vectors = words_of(embedder, example)
    uses = [i for i, (_, word) in enumerate(words) if word == example["pick"]]
    assert [words[i][0] for i in uses] == [0, 1, 2, 3]  # two of one meaning, two of the other
    pairs = list(itertools.combinations(range(4), 2))
    cosine = {(a, b): vectors[uses[a]] @ vectors[uses[b]] for a, b in pairs}
    same = min(cosine[0, 1], cosine[2, 3])
    other = max(value for pair, value in cosine.items() if pair not in ((0, 1), (2, 3)))
    assert same > other + 0.2


def test_a_misspelt_word_is_nearest_to_the_right_one(embedder, examples):
    example = examples["Misspellings"]
    words, vectors = words_of(embedder, example)
    spelled = [word for _, word in words]
    assert example["pick"] == "recieve"
    for wrong, right in (
        ("recieve", "receive"),
        ("definately", "definitely"),
        ("seperate", "separate"),
        ("goverment", "government"),
    ):
        i = spelled.index(wrong)
        near = vectors @ vectors[i]
        near[i] = -1
        assert spelled[int(near.argmax())] == right
