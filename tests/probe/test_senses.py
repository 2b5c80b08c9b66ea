"""A tiny inventory whose nearest senses are computed by hand, and the real data's baselines."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.errors import ConfigError, DataError
from elmore.probe import senses, wordnet
from elmore.probe.sense_corpus import Instance, SenseCorpus
from elmore.probe.sense_scores import score_gain, score_senses
from elmore.tasks.embedding.word_vectors import WordVectors
from tests.support.cli_runner import run_elmore
from tests.support.sense_corpus import write_corpus, write_wordnet

RIVER, MONEY = "bank%1:17:01::", "bank%1:14:00::"
TILT = "bank%2:38:00::"
OAR = "oar%1:06:00::"
FAST, QUICK = "fast%4:02:01::", "fast%4:02:00::"

# The word of a use tells its vector, so that a test can place each use where it wants.
PLACES = {
    "bank-east": (4.0, 0.0),
    "bank-northeast": (1.0, 1.0),
    "bank-north": (0.0, 1.0),
    "bank-eastish": (3.0, 1.0),
    "bank-northish": (1.0, 3.0),
    "fast-south": (0.0, -1.0),
}


class FakeEmbedder:
    """Gives hand-made vectors: layer 0 is zero, layer 1 as placed, layer 2 turned by 90°.

    The cloze vector of a word is as placed, and the whitened one zero.
    """

    num_layers, width, whitening = 3, 2, None

    def stream(self, texts, *, layers):
        assert layers == [0, 1, 2, "cloze", *(["whitened"] if self.whitening else [])]
        for words in texts:
            placed = np.array([PLACES.get(word, (0.0, 0.0)) for word in words], np.float32)
            turned = placed[:, ::-1] * np.array([-1, 1], np.float32)
            zero = np.zeros_like(placed)
            vectors = np.stack([zero, placed, turned, placed, zero])[: len(layers)]
            yield SimpleNamespace(vectors=vectors)


def bank(place, keys, pos="NOUN"):
    return (f"bank-{place}", "bank", pos, keys)


@pytest.fixture
def known(tmp_path):
    ordered = [(RIVER, 1), (MONEY, 2), (TILT, 1), (OAR, 1), (QUICK, 1), (FAST, 2)]
    return wordnet.read_wordnet(write_wordnet(tmp_path / "wordnet", *ordered))


def corpora(tmp_path, train, test):
    return (
        SenseCorpus(write_corpus(tmp_path, "train", train)),
        SenseCorpus(write_corpus(tmp_path, "test", test)),
    )


def probed(train, test, known, source=None, **options):
    options = {"held_out": 0} | options
    result = senses.probe_senses(source or FakeEmbedder(), train, [test], known, **options)
    return result, result.tests["test"]


def test_the_nearest_average_by_cosine_is_taken(tmp_path, known):
    # MONEY's average is (4, 0) and (1, 1) -> (2.5, 0.5), RIVER's (0, 1). By cosine, (1, 3) is
    # nearer to RIVER: 3 / sqrt(10) = 0.95 against 4 / (sqrt(10) * sqrt(6.5)) = 0.50; (3, 1) is
    # nearer to MONEY: 8 / (sqrt(10) * sqrt(6.5)) = 0.99 against 0.32; (1, 1) is nearer to MONEY:
    # 3 / (sqrt(2) * sqrt(6.5)) = 0.83 against 0.71, though it is farther from it: 1.6 against 1.0.
    train = [[["a", bank("east", MONEY)], [bank("northeast", MONEY)], [bank("north", RIVER)]]]
    test = [
        [["x", bank("northish", RIVER)], [bank("eastish", MONEY)], [bank("northeast", MONEY)]],
    ]
    _, rows = probed(*corpora(tmp_path, train, test), known)
    assert rows["1"]["f1"] == rows["2"]["f1"] == rows["average"]["f1"] == 1.0
    assert rows["first sense"]["f1"] == pytest.approx(1 / 3)


def test_long_vectors_do_not_outweigh_short_ones_in_the_even_sum(tmp_path, known):
    # MONEY's uses lie at 0° (length 4) and 90° (length 1): their plain sum at 14°, that of unit
    # vectors at 45°. RIVER lies at 18°, so 0° is nearer to MONEY in the one, to RIVER in the other.
    train = [[[bank("east", MONEY), bank("north", MONEY)], [bank("eastish", RIVER)]]]
    test = [[[bank("east", MONEY)]]]
    _, rows = probed(*corpora(tmp_path, train, test), known)
    assert [rows[row]["f1"] for row in ("1", "2", "average", "1+2")] == [1.0, 1.0, 1.0, 0.0]


def test_layers_without_information_fall_back_to_the_order_of_wordnet(tmp_path, known):
    train = [[[bank("east", MONEY)], [bank("north", RIVER)]]]
    test = [[[bank("east", MONEY), bank("north", RIVER)]]]
    _, rows = probed(*corpora(tmp_path, train, test), known)
    assert rows["0"]["f1"] == 0.5  # zeros: RIVER, the first sense, for both


def test_only_senses_that_were_seen_are_answered(tmp_path, known):
    train = [[[bank("east", MONEY)]]]
    test = [[[bank("north", RIVER)]]]
    _, rows = probed(*corpora(tmp_path, train, test), known)
    assert rows["1"]["f1"] == 0.0
    assert rows["1"]["coverage"] == rows["1"]["alone_coverage"] == 1.0


def test_an_occurrence_with_several_keys_counts_for_each_of_them(tmp_path, known):
    # Both averages hold the shared use: MONEY is (4, 0), RIVER is (4, 0) and (0, 1) -> (2, 0.5).
    train = [[[bank("east", f"{MONEY} {RIVER}")], [bank("north", RIVER)]]]
    test = [[[bank("east", MONEY)], [bank("eastish", f"{RIVER} {MONEY}")], [bank("east", RIVER)]]]
    _, rows = probed(*corpora(tmp_path, train, test), known)
    # (4, 0) is nearest to MONEY: the first is right, the last wrong; the second is right anyway.
    assert rows["1"]["f1"] == pytest.approx(2 / 3)


def test_a_lemma_not_seen_gets_the_first_sense_or_no_answer(tmp_path, known):
    train = [[[bank("east", MONEY)], [bank("north", RIVER)]]]
    oar = ("oar", "oar", "NOUN", OAR)
    as_verb = bank("east", TILT, "VERB")  # seen as a noun only
    adverb = ("fast", "fast", "ADV", FAST)  # not WordNet's first sense
    test = [[[bank("east", MONEY), bank("east", RIVER), oar, as_verb, adverb]]]
    _, rows = probed(*corpora(tmp_path, train, test), known)
    result = rows["1"]
    # Answered alone: the two banks, one of them right. With the fallback: oar and bank (verb) too.
    assert (result["f1"], result["coverage"]) == (3 / 5, 1.0)
    assert (result["alone_precision"], result["alone_recall"]) == (1 / 2, 1 / 5)
    assert result["alone_f1"] == pytest.approx(2 * 1 / (2 + 5))
    assert result["alone_coverage"] == 2 / 5
    assert (result["f1_noun"], result["f1_verb"], result["f1_adv"]) == (2 / 3, 1.0, 0.0)
    assert "f1_adj" not in result
    assert "alone_f1" not in rows["first sense"]


def test_centring_removes_what_all_occurrences_share(tmp_path, known):
    # The mean of all uses is (2, 0.5). Less it, MONEY (4, 0) lies at (2, -0.5), RIVER (0, 1) at
    # (-2, 0.5), and (1, 1) at (-1, 0.5): nearer to RIVER. Without, (1, 1) is as near to both, and
    # then the first sense is taken, which is RIVER too.
    train = [[[bank("east", MONEY)], [bank("north", RIVER)]]]
    test = [[[bank("northeast", MONEY)]]]
    _, rows = probed(*corpora(tmp_path, train, test), known)
    assert rows["1 centred"]["f1"] == rows["1"]["f1"] == 0.0
    # With three more uses of MONEY the mean is (3.2, 0.2): MONEY at (0.8, -0.2), (3, 1) at
    # (-0.2, 0.8): nearer to RIVER at (-3.2, 0.8). Its plain cosine is nearer to MONEY.
    train = [[4 * [bank("east", MONEY)], [bank("north", RIVER)]]]
    test = [[[bank("eastish", RIVER)]]]
    _, rows = probed(*corpora(tmp_path, train, test), known)
    assert (rows["1"]["f1"], rows["1 centred"]["f1"]) == (0.0, 1.0)


def test_an_occurrence_of_several_words_is_the_mean_of_their_vectors(tmp_path, known):
    # (4, 0) and (0, 1) give (2, 0.5), nearest to MONEY; the last word alone would be RIVER.
    train = [[[bank("east", MONEY)], [bank("north", RIVER)]]]
    test = [[[("bank-east bank-north", "bank", "NOUN", MONEY)]]]
    _, rows = probed(*corpora(tmp_path, train, test), known)
    assert rows["1"]["f1"] == 1.0


def test_documents_are_held_out_to_choose_and_learned_from_for_the_tests(tmp_path, known):
    # In each document the east is MONEY; only a fast of the other document could tell of fast.
    document = [[bank("east", MONEY)], [bank("north", RIVER)]]
    train = [[*document, [("fast-south", "fast", "ADV", FAST)]], document]
    test = [[[bank("east", MONEY), ("fast-south", "fast", "ADV", FAST)]]]
    for seed in range(4):
        result, rows = probed(*corpora(tmp_path, train, test), known, held_out=0.5, seed=seed)
        assert result.chosen == "1"  # the first of the best
        assert rows["1"]["alone_coverage"] == 1.0
        held = result.held_out["1"]
        assert held["alone_precision"] == 1.0
        assert held["alone_coverage"] in (2 / 3, 1.0)  # fast is in one of the two
        assert (held["f1_noun"], result.held_out["0"]["f1_noun"]) == (1.0, 0.5)
    assert (result.num_uses, result.num_senses) == (5, 3)


def test_holding_out_documents_does_not_change_test_scores(tmp_path, known):
    train = [[[bank("east", MONEY)]], [[bank("north", RIVER)]], [[bank("northeast", RIVER)]]]
    test = [[[bank("eastish", MONEY), bank("northish", RIVER)]]]
    pair = corpora(tmp_path, train, test)
    assert probed(*pair, known, held_out=0.3)[1] == probed(*pair, known)[1]


def test_cloze_and_whitened_rows_are_compared_with_the_top_layer_and_not_chosen(tmp_path, known):
    source = FakeEmbedder()
    source.whitening = object()
    train = [[bank("east", MONEY), bank("north", RIVER)]]
    text, test = corpora(tmp_path, [train, train], [[[bank("eastish", MONEY)]]])
    result, table = probed(text, test, known, source, held_out=0.5)
    assert result.chosen in ("0", "1", "2", "1+2", "average")
    beyond = [row for row in table if senses.is_beyond_paper(row)]
    assert beyond == [*table][-4:] == ["cloze", "cloze centred", "whitened", "whitened centred"]
    assert table["cloze"]["f1"] == table["1"]["f1"]
    for row in beyond:
        assert table[row]["gain"] == table[row]["f1"] - table["2"]["f1"]
        assert table[row]["gain_low"] <= table[row]["gain"] <= table[row]["gain_high"]
    assert "gain" not in table["1"]


def test_the_interval_of_a_gain_is_paired():
    right, wrong = ["a"] * 90, ["b"] * 90
    uses = [use("a")] * 100
    gain = score_gain(uses, right + ["a"] * 10, right + ["b"] * 10)
    assert gain["gain"] == pytest.approx(0.1)
    assert gain["gain_low"] > 0.03  # that of the two scores by themselves would reach 0
    assert score_gain(uses, wrong + ["a"] * 10, wrong + ["a"] * 10)["gain_high"] == 0


def test_word_vectors_are_one_layer(tmp_path, known):
    words = {word: row for row, word in enumerate(PLACES)}
    vectors = WordVectors(words, np.array([*PLACES.values()], np.float32))
    train = [[[bank("eastish", MONEY)], [bank("north", RIVER)]]]
    test = [[[bank("east", MONEY), bank("north", RIVER)]]]
    _, rows = probed(*corpora(tmp_path, train, test), known, vectors, name="glove")
    assert list(rows) == ["first sense", "glove", "glove centred"]
    assert rows["glove"]["f1"] == rows["glove centred"]["f1"] == 1.0


def test_rounding_chooses_no_sense(tmp_path, known, rng):
    # The averages of one vector taken thrice, seven times ... differ only in their last digits.
    vectors = WordVectors({"bank-here": 0}, rng.normal(size=(1, 50)).astype(np.float32))
    for number in range(2, 12):
        train = [[number * [bank("here", MONEY)], 3 * [bank("here", RIVER)]]]
        pair = corpora(tmp_path, train, [[[bank("here", RIVER)]]])
        assert probed(*pair, known, vectors, name="glove")[1]["glove"]["f1"] == 1.0


def test_progress_ends_with_every_word(tmp_path, known):
    seen = []
    train = [[["a", bank("east", MONEY)], ["left", "out"]]]
    pair = corpora(tmp_path, train, [[["the", bank("east", MONEY)]]])
    probed(*pair, known, progress=lambda done, words: seen.append((done, words)))
    assert seen == [(0.5, 2), (1.0, 4)]


def test_invalid_input_is_refused(tmp_path, known):
    train, test = corpora(tmp_path, [[[bank("east", MONEY)]]], [[["none"]]])
    with pytest.raises(ConfigError, match="held_out must be at least 0"):
        probed(train, train, known, held_out=1.0)
    with pytest.raises(ConfigError, match="one document cannot be split"):
        probed(train, train, known, held_out=0.1)
    with pytest.raises(ConfigError, match="different names, found train, train"):
        senses.probe_senses(FakeEmbedder(), train, [train, train], known)
    with pytest.raises(DataError, match=r"test\.data\.xml: holds no annotated instance"):
        probed(train, test, known)


def use(right: str) -> Instance:
    return Instance("i", "a", "NOUN", 0, 1, (right,))


def test_the_interval_of_a_score_is_that_of_a_binomial():
    result = score_senses([use("a")] * 400, ["a"] * 300 + ["b"] * 100)
    wide = 1.96 * (0.75 * 0.25 / 400) ** 0.5
    assert result["f1"] == 0.75
    assert result["f1_low"] == pytest.approx(0.75 - wide, abs=0.006)
    assert result["f1_high"] == pytest.approx(0.75 + wide, abs=0.006)


@given(st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=50), st.integers(0, 3))
def test_scores_agree_with_their_definitions(answers, seed):
    result = score_senses([use("a")] * len(answers), answers, seed=seed)
    told = [answer for answer in answers if answer]
    precision = told.count("a") / len(told) if told else 0.0
    recall = told.count("a") / len(answers)
    both = precision + recall
    assert result["precision"] == precision
    assert result["recall"] == recall
    assert result["f1"] == pytest.approx(2 * precision * recall / both if both else 0.0)
    assert result["f1_low"] <= result["f1"] + 1e-9
    assert result["f1_high"] >= result["f1"] - 1e-9
    assert result == score_senses([use("a")] * len(answers), answers, seed=seed)


@pytest.fixture
def command(tmp_path, known):
    document = [[bank("east", MONEY), bank("north", RIVER)]]
    corpora(tmp_path, [document, document], [[[bank("eastish", MONEY)]]])
    numbers = [f"{word} {x} {y}" for word, (x, y) in PLACES.items()]
    (tmp_path / "glove.txt").write_text("\n".join([*numbers, ""]))
    return [
        *("probe", "wsd", "--device", "cpu", "--held-out", "0.5"),
        *("--train", str(tmp_path / "train.data.xml"), "--test", str(tmp_path / "test.data.xml")),
        *("--wordnet", str(tmp_path / "wordnet"), "--vectors", f"glove:{tmp_path / 'glove.txt'}"),
    ]


def test_the_command_shows_every_row_and_marks_the_chosen(command):
    shown = run_elmore(*command)
    assert shown.code == 0, shown.err
    head, *rows = [line.split("\t") for line in shown.out.splitlines()]
    table = [dict(zip(head, row, strict=True)) for row in rows]
    named = [(row["text"], row["layer"], row["chosen"], row["f1"]) for row in table]
    assert named == [
        ("held out", "first sense", "", "50.0"),
        ("held out", "glove", "*", "100.0"),
        ("held out", "glove centred", "", "100.0"),
        ("test", "first sense", "", "0.0"),
        ("test", "glove", "*", "100.0"),
        ("test", "glove centred", "", "100.0"),
    ]


def test_the_command_gives_json(command):
    result = json.loads(run_elmore(*command, "--json").out)
    assert result["punctuation"] == "plain"
    assert result["chosen"] == "glove"
    assert result["tests"]["test"]["glove"]["f1_noun"] == 1.0


def test_the_command_runs_the_bundled_model(command):
    shown = run_elmore(*command[: command.index("--vectors")], "--json")
    assert list(json.loads(shown.out)["held_out"])[:3] == ["first sense", "0", "0 centred"]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--vectors", "word2vec:x"], "--vectors 'word2vec:x': expected glove:FILE"),
        (["--model", "x"], "--vectors replaces the model"),
        (["--held-out", "2"], "held_out must be at least 0 and below 1, found 2.0"),
    ],
)
def test_invalid_options_are_reported_in_one_sentence(command, more, sentence):
    shown = run_elmore(*command, *more)
    assert shown.code == 1
    assert sentence in shown.err


@pytest.fixture(scope="module")
def real():
    folder = os.environ.get("ELMORE_DATA")
    if not folder or not (Path(folder) / "tasks" / "wsd").is_dir():
        pytest.skip("ELMORE_DATA is not set, or holds no tasks/wsd: the sense corpora are not here")
    return Path(folder) / "tasks" / "wsd"


def test_the_first_sense_baseline_is_that_of_the_literature(real):
    index = wordnet.read_wordnet(real / "wordnet-3.0")
    for name, expected, size in (("senseval2", 66.8, 2282), ("semeval2007", 55.2, 455)):
        corpus = SenseCorpus(real / "Evaluation_Datasets" / name)
        uses = [use for sentence in corpus for use in sentence.instances]
        assert len(uses) == size
        result = score_senses(uses, [index.first_sense(use.lemma, use.pos) for use in uses])
        assert 100 * result["f1"] == pytest.approx(expected, abs=0.1)
        assert result["coverage"] == 1.0
