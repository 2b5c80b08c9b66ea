"""A tiny model with a softmax and a whitening, exported as a site."""

import pytest

from elmore.browser.site import write_site
from elmore.embed.embedder import Embedder
from elmore.weights import folder, pretrained
from tests.support import toy_corpus
from tests.support.real_browser import browser  # noqa: F401 -- a fixture
from tests.support.toy_whitening import make_whitening


@pytest.fixture(scope="session")
def model(corpus, tmp_path_factory):
    path = tmp_path_factory.mktemp("browser") / "toy"
    folder.save(toy_corpus.training(corpus).bundle({}), path, storage="int8")
    folder.add_whitening(path, make_whitening(Embedder(pretrained.load(path))))
    return path


@pytest.fixture(scope="session")
def embedder(model):
    return Embedder(pretrained.load(model))


@pytest.fixture(scope="session")
def site(model):
    write_site(model.parent / "site", model)
    return model.parent / "site"
