"""A tiny model with a softmax, and servers of it: with and without an index, with a whitening."""

from dataclasses import replace

import pytest

from elmore.embed.embedder import Embedder
from elmore.weights import folder
from tests.support import toy_corpus
from tests.support.real_browser import browser  # noqa: F401 -- a fixture
from tests.support.toy_whitening import make_whitening

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
pytest.importorskip("uvicorn", reason="the extra 'serve' is not installed")


@pytest.fixture(scope="session")
def bundle(corpus):
    result = toy_corpus.training(corpus).bundle({})
    result.model.eval()  # as one that is loaded: it has no dropout to switch off and on
    return result


@pytest.fixture(scope="session")
def embedder(bundle):
    return Embedder(bundle)


@pytest.fixture(scope="module")
def client(embedder):
    from tests.support.live_server import engine_of, run_server

    with run_server(engine_of(embedder, index=True)) as result:
        yield result


@pytest.fixture(scope="module")
def bare(embedder):
    """A server without an index, of a model without a softmax."""
    from tests.support.live_server import engine_of, run_server

    without = Embedder(replace(embedder.bundle, softmax=None))
    with run_server(engine_of(without)) as result:
        yield result


@pytest.fixture(scope="session")
def whitened_embedder(bundle, embedder):
    return Embedder(replace(bundle, whitening=make_whitening(embedder)))


@pytest.fixture(scope="module")
def whitened(whitened_embedder):
    """A server with an index, of a model with a whitening."""
    from tests.support.live_server import engine_of, run_server

    with run_server(engine_of(whitened_embedder, index=True)) as result:
        yield result


@pytest.fixture(scope="module")
def model(bundle, tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "model"
    folder.save(bundle, path)
    return str(path)
