"""A tiny language model, with a softmax, for the sets."""

import pytest

from elmore.embed.embedder import Embedder
from tests.support import toy_corpus


@pytest.fixture
def elmo(corpus) -> Embedder:
    return Embedder(toy_corpus.training(corpus).bundle({}), device="cpu")


@pytest.fixture
def no_progress():
    return lambda done, items: None
