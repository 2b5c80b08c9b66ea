"""spaCy's own components on `elmore.Tok2Vec.v1`, trained, saved and loaded by spaCy itself."""

import json
import os
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import elmore
from elmore.errors import ConfigError
from elmore.model.mix import ScalarMix
from elmore.tasks.pos import data
from tests.support import doc_blocks, tiny_model
from tests.support.sweeps import FULL, pick

spacy = pytest.importorskip("spacy", reason="spaCy is not installed: make test-integrations")

from spacy.tokens import Doc, DocBin  # noqa: E402
from spacy.training import Example  # noqa: E402

LISTENER = {"@architectures": "spacy.Tok2VecListener.v1", "width": 12}
SENTENCES = [
    (["Ann", "left", "Rome", "."], ["NNP", "VBD", "NNP", "."]),
    (["she", "saw", "Bob", "and", "ran"], ["PRP", "VBD", "NNP", "CC", "VBD"]),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return tiny_model.save_model(tmp_path_factory.mktemp("model"))


def layer(folder: str, **options):
    build = spacy.registry.architectures.get("elmore.Tok2Vec.v1")
    return build(folder, **options)


def docs_of(nlp, sentences=SENTENCES) -> list[Doc]:
    return [Doc(nlp.vocab, words=words) for words, _ in sentences]


def examples(nlp) -> list[Example]:
    """Everything that the components below learn, for each sentence."""
    result = []
    for words, tags in SENTENCES:
        gold = Doc(
            nlp.vocab,
            words=words,
            tags=tags,
            heads=[1] * len(words),
            deps=[["nsubj", "ROOT", "obj"][min(i, 2)] for i in range(len(words))],
            ents=[f"B-{word}" if word in ("Ann", "Bob") else "O" for word in words],
        )
        result.append(Example(Doc(nlp.vocab, words=words), gold))
    return result


def test_untrained_it_is_the_average_of_the_layers(folder):
    nlp, elmo, model = spacy.blank("en"), elmore.load(folder), layer(folder)
    docs = [*docs_of(nlp), nlp.make_doc("a naïve  日本\n"), nlp.make_doc(""), nlp.make_doc("  ")]
    model.initialize(docs)
    assert model.get_dim("nO") == elmo.width
    for doc, rows in zip(docs, model.predict(docs), strict=True):
        words = [token.text for token in doc if not token.is_space]
        space = np.array([token.is_space for token in doc], dtype=bool)
        assert rows.shape == (len(doc), elmo.width)
        np.testing.assert_allclose(rows[~space], elmo.embed([words])[0].vectors, atol=1e-5)
        assert not rows[space].any()


def test_the_mix_and_its_gradient_are_those_of_the_paper(folder):
    nlp, model, mix = spacy.blank("en"), layer(folder), ScalarMix(3)
    docs = docs_of(nlp)
    model.initialize(docs)
    weights, gamma = np.array([0.3, -1.0, 0.5], np.float32), np.array([1.7], np.float32)
    model.set_param("weights", weights)
    model.set_param("gamma", gamma)
    with torch.no_grad():
        mix.weights.copy_(torch.from_numpy(weights))
        mix.gamma.copy_(torch.from_numpy(gamma)[0])
    layers = elmore.load(folder).embed([words for words, _ in SENTENCES], layers="all")
    stack = torch.from_numpy(np.concatenate([result.vectors for result in layers], axis=1))
    expected = mix(stack[:, None])[0]
    above = torch.randn_like(expected)
    expected.backward(above)
    mixed, backprop = model.begin_update(docs)
    np.testing.assert_allclose(np.concatenate(mixed), expected.detach(), atol=1e-5)
    assert backprop(np.split(above.numpy(), [len(docs[0])])) == []
    np.testing.assert_allclose(model.get_grad("weights"), mix.weights.grad, atol=1e-4)
    np.testing.assert_allclose(model.get_grad("gamma"), mix.gamma.grad[None], atol=1e-4)


CONFIGS = {
    "tagger": {"@architectures": "spacy.Tagger.v2"},
    "parser": {
        "@architectures": "spacy.TransitionBasedParser.v2",
        "state_type": "parser",
        "extra_state_tokens": False,
        "hidden_width": 16,
        "maxout_pieces": 2,
        "use_upper": True,
    },
    "ner": {
        "@architectures": "spacy.TransitionBasedParser.v2",
        "state_type": "ner",
        "extra_state_tokens": False,
        "hidden_width": 16,
        "maxout_pieces": 2,
        "use_upper": True,
    },
}


def marks(doc) -> list[tuple]:
    return [(token.tag_, token.dep_, token.head.i, token.ent_type_) for token in doc]


OPTIONS = {"parser": {"min_action_freq": 1}}  # two sentences hold each label a few times


def trained(nlp, steps: int = 150):
    spacy.util.fix_random_seed(0)
    data = examples(nlp)
    optimizer = nlp.initialize(lambda: data)
    optimizer.learn_rate = 0.05
    for _ in range(steps):
        nlp.update(data, sgd=optimizer)
    return nlp


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("width", [None, 8])
def test_a_component_learns_on_it_and_is_loaded_without_the_model(folder, tmp_path, name, width):
    moved = shutil.copytree(folder, tmp_path / "moved")
    tok2vec = {"@architectures": "elmore.Tok2Vec.v1", "model": str(moved), "width": width}
    nlp = spacy.blank("en")
    model = {**CONFIGS[name], "tok2vec": tok2vec}
    nlp.add_pipe(name, config={"model": model, **OPTIONS.get(name, {})})
    trained(nlp)
    result = [marks(nlp(doc)) for doc in docs_of(nlp)]
    gold = [marks(example.reference) for example in examples(nlp)]
    learned = {"tagger": (0,), "parser": (1, 2), "ner": (3,)}[name]
    for i in learned:
        assert [[mark[i] for mark in doc] for doc in result] == [
            [mark[i] for mark in doc] for doc in gold
        ]
    nlp.to_disk(tmp_path / "pipeline")
    data = nlp.to_bytes()
    shutil.rmtree(moved)
    loaded = spacy.load(tmp_path / "pipeline")
    assert [marks(loaded(doc)) for doc in docs_of(loaded)] == result
    again = spacy.blank("en").from_config(nlp.config).from_bytes(data)
    assert [marks(again(doc)) for doc in docs_of(again)] == result


def test_components_may_share_one_layer(folder):
    nlp = spacy.blank("en")
    nlp.add_pipe(
        "tok2vec", config={"model": {"@architectures": "elmore.Tok2Vec.v1", "model": folder}}
    )
    for name, config in CONFIGS.items():
        model = {**config, "tok2vec": LISTENER}
        nlp.add_pipe(name, config={"model": model, **OPTIONS.get(name, {})})
    trained(nlp)
    for doc, example in zip(docs_of(nlp), examples(nlp), strict=True):
        assert marks(nlp(doc)) == marks(example.reference)
    (mix,) = [node for node in nlp.get_pipe("tok2vec").model.walk() if node.name == "elmore"]
    assert np.abs(mix.get_param("weights")).max() > 1e-3  # it has learned


def test_it_may_stand_below_an_encoder_of_spacy(folder):
    model = {
        "@architectures": "spacy.Tok2Vec.v2",
        "embed": {"@architectures": "elmore.Tok2Vec.v1", "model": folder, "width": 8},
        "encode": {
            "@architectures": "spacy.MaxoutWindowEncoder.v2",
            "width": 8,
            "depth": 1,
            "window_size": 1,
            "maxout_pieces": 2,
        },
    }
    nlp = spacy.blank("en")
    nlp.add_pipe("tagger", config={"model": {**CONFIGS["tagger"], "tok2vec": model}})
    trained(nlp)
    for doc, (_, tags) in zip(docs_of(nlp), SENTENCES, strict=True):
        assert [token.tag_ for token in nlp(doc)] == tags


@pytest.mark.parametrize(("megabytes", "num_read"), [(1000, 2), (0, 8)])
def test_a_text_is_embedded_once_while_the_cache_has_space(
    folder, monkeypatch, megabytes, num_read
):
    nlp, model = spacy.blank("en"), layer(folder, cache_megabytes=megabytes)
    docs, read = docs_of(nlp), []
    model.initialize(docs)
    reader = model.shims[0].embedder
    whole = reader.embed
    monkeypatch.setattr(
        reader, "embed", lambda docs, layers: read.extend(docs) or whole(list(docs), layers)
    )
    first = model.begin_update(docs)[0]
    for result in (model.begin_update(docs[::-1])[0], model.predict(docs[::-1])):
        for one, other in zip(first, result[::-1], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
    model.predict(docs)
    assert len(read) == num_read


def test_nothing_is_cached_for_prediction_alone(folder):
    nlp, model = spacy.blank("en"), layer(folder)
    model.initialize(docs_of(nlp))
    model.predict(docs_of(nlp))
    assert not model.shims[0]._cache


def test_a_negative_cache_size_is_refused(folder):
    with pytest.raises(ConfigError, match="must not be negative"):
        layer(folder, cache_megabytes=-1)


CONFIG = """
[nlp]
lang = "en"
pipeline = ["tagger"]
[components]
[components.tagger]
factory = "tagger"
[components.tagger.model]
@architectures = "spacy.Tagger.v2"
[components.tagger.model.tok2vec]
@architectures = "elmore.Tok2Vec.v1"
model = "{model}"
[corpora]
[corpora.train]
@readers = "spacy.Corpus.v1"
path = "{text}"
[corpora.dev]
@readers = "spacy.Corpus.v1"
path = "{text}"
[training]
max_steps = 60
eval_frequency = 30
[training.optimizer]
@optimizers = "Adam.v1"
learn_rate = 0.05
"""


def test_spacy_train_takes_it_from_a_config_file(folder, tmp_path):
    from spacy.cli.init_config import fill_config
    from spacy.cli.train import train

    nlp = spacy.blank("en")
    text = tmp_path / "text.spacy"
    DocBin(docs=[example.reference for example in examples(nlp)]).to_disk(text)
    partial, config = tmp_path / "partial.cfg", tmp_path / "config.cfg"
    partial.write_text(CONFIG.format(model=folder, text=text))
    fill_config(config, partial, silent=True)
    train(config, tmp_path / "run")
    best = spacy.load(tmp_path / "run/model-best")
    for doc, (_, tags) in zip(docs_of(best), SENTENCES, strict=True):
        assert [token.tag_ for token in best(doc)] == tags


def test_the_config_of_the_page_builds_a_pipeline():
    page = (doc_blocks.INTEGRATIONS / "spacy.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```ini\n(.*?)```", page, re.DOTALL)
    head = '[nlp]\nlang = "en"\npipeline = ["tok2vec", "ner"]\n[components]\n'
    head += '[components.ner]\nfactory = "ner"\n[components.ner.model]\n'
    parser = "".join(f"{key} = {json.dumps(value)}\n" for key, value in CONFIGS["ner"].items())
    config = spacy.util.Config().from_str(head + parser + block)
    nlp = spacy.util.load_model_from_config(config, auto_fill=True)
    (listener,) = nlp.get_pipe("tok2vec").listeners
    assert listener.get_dim("nO") == nlp.get_pipe("tok2vec").model.get_dim("nO") == 128


def accuracy(train, test, config: dict, epochs: int) -> float:
    """Train a tagger as one would, and score it on text it has not seen."""
    spacy.util.fix_random_seed(0)
    nlp = spacy.blank("en")
    nlp.add_pipe("tagger", config=config)

    def told(sentences):
        for result in sentences:
            gold = Doc(nlp.vocab, words=result.tokens, tags=result.tags)
            yield Example(Doc(nlp.vocab, words=result.tokens), gold)

    seen, order = list(told(train)), random.Random(0)
    optimizer = nlp.initialize(lambda: seen)
    nlp.update(seen, sgd=optimizer)  # all at once, which is quicker to read
    for _ in range(epochs):
        order.shuffle(seen)
        for batch in spacy.util.minibatch(seen, 16):
            nlp.update(batch, sgd=optimizer, drop=0.1)
    return nlp.evaluate(list(told(test)))["tag_acc"]


@pytest.mark.slow
def test_a_tagger_is_better_on_it_than_on_spacys_own_layer(data_folder):
    """Universal tags of the English Web Treebank; the page tells of 100 sentences, a full run."""
    read = [
        data.read_conllu(data_folder / f"tasks/pos/en_ewt-ud-{part}.conllu.xz", column="upos")
        for part in ("train", "test")
    ]
    train, test = read[0][::120][: pick(40, 100)], read[1][::20][: pick(30, 80)]
    tok2vec = {"@architectures": "elmore.Tok2Vec.v1", "precision": "fast"}
    ours = {"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": tok2vec}}
    without = accuracy(train, test, {}, epochs=pick(10, 30))
    elmo = accuracy(train, test, ours, epochs=pick(5, 15))
    assert elmo > without + 0.05
    if not FULL:
        return
    page = (doc_blocks.INTEGRATIONS / "spacy.md").read_text(encoding="utf-8")
    told = [float(number) for number in re.findall(r"(0\.\d+) on", page)]
    assert [elmo, without] == pytest.approx(told, abs=0.03)


@pytest.fixture(scope="module")
def data_folder() -> Path:
    folder = os.environ.get("ELMORE_DATA")
    if not folder:
        pytest.skip("ELMORE_DATA is not set: the tagged text is not here")
    return Path(folder)
