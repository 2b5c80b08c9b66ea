"""`nlp.add_pipe("elmore")` in a real spaCy, found by the entry point."""

import pickle
import shutil
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import elmore
from elmore.errors import ConfigError, DataError, WeightsError
from elmore.model.saved_mix import SavedMix
from tests.support import doc_blocks, tiny_model

spacy = pytest.importorskip("spacy", reason="spaCy is not installed: make test-integrations")

TEXTS = [
    "I left it at the bank.",
    "Two  spaces, a\ttab\n\nand a naïve 日本 word 🙂.",
    "",
    " \n ",
    "One.",
    "The play was sold out. They play chess, and she can't stay.",
    "x" * 80 + " is a long word",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return tiny_model.save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def elmo(folder):
    return elmore.load(folder)


def pipeline(folder: str, **config):
    nlp = spacy.blank("en")
    nlp.add_pipe("elmore", config={"model": folder, **config})
    return nlp


def words(doc) -> list[str]:
    return [token.text for token in doc if not token.is_space]


def assert_filled(doc, elmo, sentences=None, **options):
    """Rows are those of the Embedder, and zeros for whitespace."""
    assert doc.tensor.shape == (len(doc), elmo.width)
    assert doc.tensor.dtype == np.float32
    rows = [result.vectors for result in elmo.embed(sentences or [words(doc)], **options)]
    space = np.array([token.is_space for token in doc], dtype=bool)
    np.testing.assert_allclose(doc.tensor[~space], np.concatenate(rows), atol=1e-5)
    assert not doc.tensor[space].any()


@pytest.mark.parametrize("text", TEXTS)
def test_the_tensor_has_the_embedders_vectors_for_spacys_own_tokens(folder, elmo, text):
    assert_filled(pipeline(folder)(text), elmo)


def test_sentences_that_are_set_run_on_their_own(folder, elmo):
    nlp = pipeline(folder)
    nlp.add_pipe("sentencizer", first=True)
    doc = nlp("The play was sold out. They play  chess.")
    apart = [words(sentence) for sentence in doc.sents]
    assert len(apart) == 2
    assert_filled(doc, elmo, apart)


@pytest.mark.parametrize(("batch_size", "batch_tokens"), [(1, 16384), (3, 20), (None, 1)])
def test_a_pipe_has_the_same_vectors_as_single_docs(folder, elmo, batch_size, batch_tokens):
    docs = list(pipeline(folder, batch_tokens=batch_tokens).pipe(TEXTS, batch_size=batch_size))
    assert [doc.text for doc in docs] == TEXTS
    for doc in docs:
        assert_filled(doc, elmo)


def test_context_is_kept(folder):
    result = list(pipeline(folder).pipe([("one", 1), ("two", 2)], as_tuples=True))
    assert [(doc.text, number, len(doc.tensor)) for doc, number in result] == [
        ("one", 1, 1),
        ("two", 2, 1),
    ]


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 5), st.integers(1, 20))
def test_batches_keep_order_and_bounds(lengths, most_docs, most_tokens):
    from elmore.integrations.spacy import _batches

    docs = [["word"] * length for length in lengths]
    batches = list(_batches(docs, most_docs, most_tokens))
    assert [doc for batch in batches for doc in batch] == docs
    for batch in batches:
        assert 1 <= len(batch) <= most_docs
        assert len(batch) == 1 or sum(map(len, batch)) <= most_tokens


def test_a_stream_is_not_read_ahead_of_its_batch(folder):
    taken = []
    stream = pipeline(folder).pipe((taken.append(text) or text for text in TEXTS), batch_size=1)
    next(stream)
    assert len(taken) <= 2


@pytest.mark.filterwarnings("ignore:.*W109.*")
def test_processes_may_share_the_work(folder, elmo):
    for doc in pipeline(folder).pipe(TEXTS, n_process=2, batch_size=2):
        assert_filled(doc, elmo)


@pytest.mark.parametrize("layers", ["average", "top", "cloze", "1", 0])
def test_layers_are_chosen_in_the_config(folder, elmo, layers):
    chosen = int(layers) if layers in ("1", 0) else layers
    assert_filled(pipeline(folder, layers=layers)(TEXTS[0]), elmo, layers=chosen)


def test_a_trained_mix_is_given_by_its_numbers(folder, elmo):
    mix = {"weights": [0.5, 0, -1], "gamma": 2.0, "layer_norm": True}
    doc = pipeline(folder, mix=mix)(TEXTS[0])
    assert_filled(doc, elmo, layers=SavedMix((0.5, 0.0, -1.0), 2.0, True))


def test_vectors_of_docs_spans_and_tokens_come_from_the_tensor(folder, elmo):
    nlp = pipeline(folder)
    nlp.vocab.set_vector("play", np.ones(5, np.float32))  # static ones, which must not win
    doc, other = nlp("The  play was sold"), nlp("They play chess")
    rows = doc.tensor
    assert (doc[2].vector == rows[2]).all()
    np.testing.assert_allclose(doc[0:3].vector, (rows[0] + rows[2]) / 2, atol=1e-6)
    np.testing.assert_allclose(doc.vector, elmo.encode([words(doc)], pool="mean")[0], atol=1e-5)
    for part in (doc, doc[0:3], doc[2]):
        assert part.has_vector
        assert part.vector_norm == pytest.approx(np.linalg.norm(part.vector), rel=1e-5)
        for against in (other, other[0:2], other[1]):
            cosine = part.vector @ against.vector / (part.vector_norm * against.vector_norm)
            assert part.similarity(against) == pytest.approx(cosine, abs=1e-5)
    assert not doc[1].has_vector
    assert doc[1].similarity(doc[0]) == 0.0
    assert doc.similarity(doc) == pytest.approx(1)
    empty = nlp("")
    assert empty.vector.shape == doc.vector.shape
    assert empty.similarity(doc) == 0.0


def test_a_similarity_warns_of_nothing(folder):
    doc = pipeline(folder)("The play was sold")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        doc.similarity(doc[0:2])


def test_a_doc_of_another_pipeline_is_not_compared(folder):
    doc = pipeline(folder)("The play")
    with pytest.raises(DataError, match="process both texts with the same pipeline"):
        doc.similarity(spacy.blank("en")("The play"))


def test_docs_are_pickled_with_their_hooks(folder):
    doc = pipeline(folder)("The  play was sold")
    again = pickle.loads(pickle.dumps(doc))
    np.testing.assert_array_equal(again.vector, doc.vector)
    assert again[0:2].similarity(again[2]) == pytest.approx(doc[0:2].similarity(doc[2]))


def test_a_component_pickled_in_another_process_leaves_the_threads_alone(folder, monkeypatch):
    nlp = pipeline(folder)
    nlp.get_pipe("elmore").embedder._process = -1
    again = pickle.loads(pickle.dumps(nlp.get_pipe("elmore")))
    limits = []
    monkeypatch.setattr(torch, "set_num_threads", limits.append)
    again(nlp.make_doc("one"))
    assert limits == []


def test_merged_tokens_and_parts_of_docs_stay_aligned(folder):
    doc = pipeline(folder)("The play was sold out")
    part = doc[1:3].as_doc()
    np.testing.assert_array_equal(part.tensor, doc.tensor[1:3])
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[3:5])
    assert len(doc.tensor) == len(doc) == 4


def test_a_saved_pipeline_is_whole_without_the_model_it_was_made_from(folder, elmo, tmp_path):
    moved = shutil.copytree(folder, tmp_path / "moved")
    nlp = pipeline(str(moved), layers="top")
    nlp.to_disk(tmp_path / "pipeline")
    data = nlp.to_bytes()
    shutil.rmtree(moved)
    nlp.to_disk(tmp_path / "pipeline")  # once more over it
    loaded = spacy.load(tmp_path / "pipeline")
    for text in TEXTS:
        assert_filled(loaded(text), elmo, layers="top")
    again = spacy.blank("en")
    again.add_pipe("elmore", config={"layers": "top"})
    assert_filled(again.from_bytes(data)(TEXTS[0]), elmo, layers="top")
    elmore.load(tmp_path / "pipeline/elmore/model")  # what was saved is a model folder


def test_a_folder_named_like_the_bundled_model_is_not_taken_for_it(tmp_path, monkeypatch):
    (tmp_path / "english").mkdir()
    (tmp_path / "english" / "text.txt").write_text("of somebody")
    monkeypatch.chdir(tmp_path)
    nlp = spacy.blank("en")
    nlp.add_pipe("elmore")
    assert_filled(nlp(TEXTS[0]), elmore.load())


def test_the_bundled_model_is_not_saved_but_known_again(tmp_path):
    nlp = spacy.blank("en")
    nlp.add_pipe("elmore")
    nlp.to_disk(tmp_path)
    assert [path.name for path in (tmp_path / "elmore").iterdir()] == ["elmore.json"]
    assert len(nlp.get_pipe("elmore").to_bytes()) < 200
    loaded = spacy.load(tmp_path)
    np.testing.assert_allclose(loaded(TEXTS[0]).tensor, nlp(TEXTS[0]).tensor, atol=1e-5)
    (tmp_path / "elmore/elmore.json").write_text('{"bundled": "of another release"}')
    with pytest.raises(WeightsError, match="of another elmore version; install that version"):
        spacy.load(tmp_path)
    (tmp_path / "elmore/elmore.json").write_text("[]")
    with pytest.raises(DataError, match="save the pipeline again"):
        spacy.load(tmp_path)


@pytest.mark.parametrize("content", [b"junk", b"\x91\x01", b"\x81\xabelmore.json\x03"])
def test_bytes_that_hold_no_model_are_refused(folder, content):
    with pytest.raises(DataError, match="save the pipeline again"):
        pipeline(folder).get_pipe("elmore").from_bytes(content)


def test_a_pipeline_can_be_saved_without_the_weights(folder, tmp_path):
    component = pipeline(folder).get_pipe("elmore")
    component.to_disk(tmp_path / "elmore", exclude=["model"])
    assert not (tmp_path / "elmore").exists()
    assert component.to_bytes(exclude=["model"]) == b""
    assert component.from_bytes(b"").from_disk(tmp_path, exclude=["model"]) is component


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"layers": "all"}, "one vector per token"),
        ({"layers": "best"}, "expected average, all, top, cloze, whitened or a number"),
        ({"mix": {"gamma": 1.0}}, "mix: expected weights"),
        ({"mix": {"weights": [1, 2, 3], "gama": 1.0}}, "mix: expected weights"),
        ({"mix": {"weights": "abc"}}, "mix: weights and gamma must be numbers: .*'a'"),
        ({"mix": {"weights": [1, 2, 3], "gamma": "x"}}, "mix: weights and gamma must be numbers"),
        ({"mix": {"weights": [1, 2, 3], "layer_norm": "no"}}, "layer_norm must be .* found 'no'"),
        ({"batch_tokens": 0}, "batch_tokens must be at least 1, found 0"),
    ],
)
def test_an_invalid_config_is_refused_when_it_is_built(folder, config, sentence):
    with pytest.raises(ConfigError, match=sentence):
        pipeline(folder, **config)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"layers": 3}, "layers 0 to 2"),
        ({"layers": "whitened"}, "no whitening"),
        ({"mix": {"weights": [1, 2]}}, "this mix has 2 weights, the model 3 layers"),
    ],
)
def test_layers_that_the_model_lacks_are_refused_by_initialize(folder, config, sentence):
    nlp = pipeline(folder, **config)
    with pytest.raises(ConfigError, match=sentence):
        nlp.initialize()


def test_a_wrong_name_is_refused_by_initialize_or_at_the_first_doc():
    with pytest.raises(WeightsError, match="no-such-model: no such file or folder"):
        pipeline("no-such-model").initialize()
    with pytest.raises(WeightsError, match="no-such-model: no such file or folder"):
        pipeline("no-such-model")("text")


def test_an_error_goes_to_the_handler_of_the_pipeline(folder):
    nlp, told = pipeline(folder, layers=3), []
    nlp.set_error_handler(lambda name, component, docs, error: told.append((name, len(docs))))
    assert list(nlp.pipe(["one", "two"])) == []
    assert told == [("elmore", 2)]


def test_a_pipeline_of_trained_parts_has_it_at_its_end(folder, elmo):
    """The tensor of a tok2vec, which its listeners read, is theirs while they work."""
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec")
    nlp.add_pipe(
        "tagger",
        config={"model": {"tok2vec": {"@architectures": "spacy.Tok2VecListener.v1", "width": 96}}},
    ).add_label("X")
    nlp.add_pipe("elmore", config={"model": folder})
    example = spacy.training.Example.from_dict(nlp.make_doc("a b"), {"tags": ["X", "X"]})
    nlp.initialize(lambda: [example])
    doc = nlp(TEXTS[0])
    assert doc[0].tag_ == "X"
    assert_filled(doc, elmo)
    assert nlp.analyze_pipes()["summary"]["elmore"]["assigns"] == ["doc.tensor"]


@pytest.mark.parametrize("block", doc_blocks.integration_blocks("spacy.md"))
def test_the_page_runs(block):
    doc_blocks.run_block(block)
