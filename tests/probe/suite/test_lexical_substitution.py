"""How candidates are ranked, and how rankings are scored."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from elmore.embed.embedder import Embedder
from elmore.lm import scoring
from elmore.lm.joint_prediction import unigram_log_probs
from elmore.probe.suite import lexical_substitution
from elmore.probe.suite.base_forms import base_forms
from elmore.probe.suite.lexical_substitution import score_substitution
from elmore.probe.suite.substitution_set import SubstitutionSet, Target

SENTENCE = ("the", "old", "bridge", "lies", "near", "the", "lake")


def target(position, candidates, weights):
    words = [tuple(text.split()) for text in candidates]
    return Target(SENTENCE, position, words, np.array(weights))


def rows(elmo, targets):
    return list(lexical_substitution._score_candidates(elmo, targets, lambda *_: None))


def test_a_candidate_has_its_log_probability_in_the_place_of_the_word(elmo):
    (found,) = rows(elmo, [target(2, ["river", "quiet town"], [1.0, 0])])
    river, quiet, town = scoring.score_batch(
        elmo.bundle, [[*SENTENCE[:2], word, *SENTENCE[3:]] for word in ("river", "quiet", "town")]
    )
    np.testing.assert_allclose(found["forward"], [river.forward[2], quiet.forward[2]], rtol=1e-5)
    np.testing.assert_allclose(found["backward"], [river.backward[2], town.backward[2]], rtol=1e-5)
    vocabulary = elmo.bundle.vocabulary
    ids = vocabulary.ids(["river", "quiet", "town"])
    one, *two = unigram_log_probs(ids, len(vocabulary))
    expected = found["forward"] + found["backward"] - [one, np.mean(two)]
    np.testing.assert_allclose(found["both"], expected, rtol=1e-5)


def test_a_word_that_the_softmax_does_not_know_gets_the_lowest_log_probability(elmo):
    (found,) = rows(elmo, [target(2, ["river", "xylophone", "bank"], [1.0, 0, 0])])
    for method in ("forward", "both"):
        assert found[method][1] == min(found[method][0], found[method][2])
    (unknown,) = rows(elmo, [target(2, ["xylophone", "zzz"], [1.0, 0])])
    assert unknown["both"].tolist() == [0, 0]


def test_a_cosine_compares_the_candidate_alone_with_the_word_in_its_sentence(elmo):
    (found,) = rows(elmo, [target(2, ["quiet town"], [1.0])])
    alone, context = elmo.embed([["quiet", "town"], list(SENTENCE)], layers=1)
    assert found["1"][0] == pytest.approx(cosine(alone.vectors, context.vectors[2:3]), rel=1e-4)


def test_in_place_the_candidate_is_in_the_sentence_too(elmo):
    (found,) = rows(elmo, [target(2, ["quiet town"], [1.0])])
    texts = [[*SENTENCE[:2], "quiet", "town", *SENTENCE[3:]], list(SENTENCE)]
    other, word = (text.vectors for text in elmo.embed(texts, layers=1))
    assert found["in place 1"][0] == pytest.approx(cosine(other[2:4], word[2:3]), rel=1e-4)
    expected = found["both"] + 40 * found["in place 1"]
    np.testing.assert_allclose(found["both + in place 1"], expected)


def cosine(one, other):
    a, b = one.mean(axis=0), other.mean(axis=0)
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_a_model_without_a_softmax_has_cosines_alone(elmo, no_progress):
    bare = Embedder(replace(elmo.bundle, softmax=None), device="cpu")
    (found,) = rows(bare, [target(2, ["river"], [1.0])])
    assert list(found) == ["0", "1", "2", "average"]
    one = [target(2, ["river"], [1.0])]
    scores = score_substitution(bare, SubstitutionSet(one, one, 1), 0, no_progress)
    assert {score.metric for score in scores} == {"gap", "p@1"}


def test_scores_are_the_means_over_targets_of_the_method_that_dev_chooses(elmo, no_progress):
    with torch.no_grad():
        elmo.bundle.softmax.weight.zero_()
        elmo.bundle.softmax.bias.zero_()
        for word, bias in (("river", 5.0), ("bank", 3.0)):
            elmo.bundle.softmax.bias[int(elmo.bundle.vocabulary.ids([word])[0])] = bias
    names = ["storm", "bank", "river"]  # ranked river, bank, storm
    test = [target(2, names, [0.0, 0.4, 0.8]), target(2, names, [0.6, 0.0, 0.0])]
    levels = {"acceptable": 0.5 + 1e-4, "conceivable": 0.1}
    data = SubstitutionSet([target(2, names, [0, 0.5, 1.0])], test, levels["acceptable"], levels)
    found = score_substitution(elmo, data, 0, no_progress)
    table = {(score.metric, score.method): score for score in found}
    gap = table["gap", "both"]
    assert gap.score == pytest.approx((1 + (0.6 / 3) / 0.6) / 2)
    assert (gap.n, gap.chosen) == (2, table["gap", "forward"].chosen is False)
    # acceptable: one of three in each target; all three are predicted
    assert table["f_acceptable@10", "both"].score == pytest.approx(2 * 2 / (6 + 2))
    assert table["f_conceivable@10", "both"].score == pytest.approx(2 * 3 / (6 + 3))
    assert table["p@1", "both"].score == 0.5
    assert table["generated_p@1", "both"].score == 0.5  # river, whatever the candidates are
    assert found[0].metric == "gap"
    assert len({score.method for score in found if score.chosen}) == 1


@pytest.mark.parametrize(
    ("word", "base"),
    [
        ("Ships", "ship"), ("parties", "party"), ("stopped", "stop"), ("making", "make"),
        ("brightest", "bright"), ("happier", "happy"), ("wolves", "wolf"), ("passes", "pass"),
    ],
)  # fmt: skip
def test_regular_forms_have_their_base_form(word, base):
    assert base in base_forms(word)
    assert word.lower() in base_forms(word)
    assert not base_forms("bus") & base_forms("bed")
