"""`ElmoEmbeddings` among Flair's own, in an environment with the real Flair."""

import random

import numpy as np
import pytest
import torch

import elmore
from elmore.errors import ConfigError

flair = pytest.importorskip("flair", reason="Flair is not installed: make test-integrations")
from flair.data import Corpus, Sentence  # noqa: E402 -- it may be absent
from flair.datasets import FlairDatapointDataset  # noqa: E402
from flair.embeddings import DocumentPoolEmbeddings, StackedEmbeddings  # noqa: E402
from flair.models import SequenceTagger  # noqa: E402
from flair.trainers import ModelTrainer  # noqa: E402

from elmore.integrations.flair import ElmoEmbeddings  # noqa: E402
from tests.support import doc_blocks  # noqa: E402
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm  # noqa: E402

TEXTS = ["I left it at the bank .", "", "naïve 日本語 " + "x" * 70, "So it goes ."]


@pytest.fixture
def model(tmp_path, rng) -> list[str]:
    options = bilm_options()
    return [
        str(path) for path in write_bilm(tmp_path / "model", options, bilm_weights(options, rng))
    ]


def sentences() -> list[Sentence]:
    return [Sentence(text, use_tokenizer=False) for text in TEXTS]


def vectors(sentence: Sentence) -> np.ndarray:
    return np.stack([token.embedding.cpu().numpy() for token in sentence])


@pytest.mark.parametrize("layers", ["average", "top", 0, 1])
def test_the_vectors_are_the_embedders(model, layers):
    embedded = sentences()
    embeddings = ElmoEmbeddings(*model, layers=layers)
    embeddings.embed(embedded)
    expected = elmore.load(*model).embed([text.split() for text in TEXTS], layers=layers)
    for sentence, result in zip(embedded, expected, strict=True):
        assert len(sentence) == len(result.tokens)
        if len(sentence):
            assert embeddings.embedding_length == result.vectors.shape[1]
            np.testing.assert_allclose(vectors(sentence), result.vectors, rtol=1e-5, atol=1e-5)


def test_all_layers_stand_one_after_another(model):
    (sentence,) = ElmoEmbeddings(*model, layers="all").embed(Sentence("So it goes ."))
    result = elmore.load(*model).embed([["So", "it", "goes", "."]], layers="all")[0].vectors
    np.testing.assert_allclose(vectors(sentence), np.concatenate(result, axis=1), atol=1e-5)


def test_other_texts_and_a_second_call_change_nothing(model):
    embeddings = ElmoEmbeddings(*model)
    alone, together = Sentence(TEXTS[0]), sentences()
    embeddings.embed(alone)
    embeddings.embed(together)
    embeddings.embed(together)
    np.testing.assert_allclose(vectors(alone), vectors(together[0]), atol=1e-5)


def test_layers_that_are_not_there_are_refused(model):
    for layers in (7, "bottom"):
        with pytest.raises(ConfigError, match=str(layers)):
            ElmoEmbeddings(*model, layers=layers)


def corpus(rng: random.Random) -> Corpus:
    """Names, each a person or a place by the words beside it."""

    def part(size: int) -> FlairDatapointDataset:
        made = []
        for _ in range(size):
            kind, words = rng.choice([("PER", "We met {} again ."), ("LOC", "We live in {} now .")])
            name = rng.choice(["Paris", "Austin", "Jordan"])
            sentence = Sentence(words.format(name), use_tokenizer=False)
            for token in sentence:
                token.add_label("tag", kind if token.text == name else "O")
            made.append(sentence)
        return FlairDatapointDataset(made)

    return Corpus(part(24), part(8), part(8), sample_missing_splits=False)


def test_a_tagger_learns_on_a_stack_is_saved_and_loaded(tmp_path):
    flair.set_seed(1)
    data = corpus(random.Random(0))
    stack = StackedEmbeddings([ElmoEmbeddings(layers="top"), ElmoEmbeddings(layers=0)])
    tagger = SequenceTagger(
        embeddings=stack,
        tag_dictionary=data.make_label_dictionary("tag", add_unk=False),
        tag_type="tag",
        use_rnn=False,
        use_crf=False,
    )
    trainer = ModelTrainer(tagger, data)
    trainer.train(tmp_path, optimizer=torch.optim.Adam, learning_rate=0.01, max_epochs=8)
    assert (tmp_path / "final-model.pt").stat().st_size < 10e6  # not the biLM
    loaded = SequenceTagger.load(str(tmp_path / "final-model.pt"))
    for text, kind in (("We met Jordan again .", "PER"), ("We live in Jordan now .", "LOC")):
        sentence = Sentence(text, use_tokenizer=False)
        loaded.predict(sentence)
        assert [label.value for label in sentence.get_labels("tag")] == [kind]


def test_a_document_is_the_mean_of_its_words(model):
    embeddings = ElmoEmbeddings(*model)
    sentence = Sentence("So it goes .", use_tokenizer=False)
    DocumentPoolEmbeddings([embeddings]).embed(sentence)
    expected = elmore.load(*model).encode([["So", "it", "goes", "."]])[0]
    np.testing.assert_allclose(sentence.embedding.cpu().numpy(), expected, atol=1e-5)
    assert sentence.embedding.dtype == torch.float32


@pytest.mark.parametrize("block", doc_blocks.integration_blocks("flair.md"))
def test_the_page_runs(block):
    doc_blocks.run_block(block)
