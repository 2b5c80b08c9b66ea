"""How candidates are ranked, and how rankings are scored."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from elmore.embed.embedder import Embedder
from elmore.lm import scoring
from elmore.probe.suite import swords
from elmore.probe.suite.swords import score_swords
from elmore.probe.suite.swords_data import Swords, Target

SENTENCE = ("the", "old", "bridge", "lies", "near", "the", "lake")


def target(position, candidates, weights):
    words = [tuple(text.split()) for text in candidates]
    return Target(SENTENCE, position, words, np.array(weights))


def rows(elmo, targets, no_progress):
    return list(swords._score_candidates(elmo, targets, no_progress))


def test_a_candidate_has_its_log_probability_in_the_place_of_the_word(elmo, no_progress):
    (found,) = rows(elmo, [target(2, ["river", "quiet town"], [1.0, 0])], no_progress)
    river, quiet, town = scoring.score_batch(
        elmo.bundle, [[*SENTENCE[:2], word, *SENTENCE[3:]] for word in ("river", "quiet", "town")]
    )
    np.testing.assert_allclose(found["forward"], [river.forward[2], quiet.forward[2]], rtol=1e-5)
    np.testing.assert_allclose(found["backward"], [river.backward[2], town.backward[2]], rtol=1e-5)
    np.testing.assert_allclose(found["both"], found["forward"] + found["backward"])


def test_a_word_that_the_softmax_does_not_know_gets_the_lowest_log_probability(elmo, no_progress):
    (found,) = rows(elmo, [target(2, ["river", "xylophone", "bank"], [1.0, 0, 0])], no_progress)
    forward = found["forward"]
    assert forward[1] == min(forward[0], forward[2])
    (unknown,) = rows(elmo, [target(2, ["xylophone", "zzz"], [1.0, 0])], no_progress)
    assert unknown["both"].tolist() == [0, 0]


def test_a_cosine_compares_the_candidate_alone_with_the_word_in_its_sentence(elmo, no_progress):
    (found,) = rows(elmo, [target(2, ["quiet town"], [1.0])], no_progress)
    alone, context = elmo.embed([["quiet", "town"], list(SENTENCE)], layers=1)
    a, b = alone.vectors.mean(axis=0), context.vectors[2]
    assert found["1"][0] == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), rel=1e-4)


def test_the_sum_of_both_kinds_is_standardized_over_the_candidates(elmo, no_progress):
    (found,) = rows(elmo, [target(2, ["river", "bank", "town"], [1.0, 0, 0])], no_progress)
    parts = [(found[k] - found[k].mean()) / found[k].std() for k in ("both", "2")]
    np.testing.assert_allclose(found["both + 2"], sum(parts), rtol=1e-6)


def test_a_model_without_a_softmax_has_cosines_alone(elmo, no_progress):
    bare = Embedder(replace(elmo.bundle, softmax=None), device="cpu")
    (found,) = rows(bare, [target(2, ["river"], [1.0])], no_progress)
    assert list(found) == ["0", "1", "2", "average"]


def test_scores_are_the_means_over_targets_of_the_method_that_dev_chooses(elmo, no_progress):
    with torch.no_grad():
        elmo.bundle.softmax.weight.zero_()
        elmo.bundle.softmax.bias.zero_()
        for word, bias in (("river", 5.0), ("bank", 3.0)):
            elmo.bundle.softmax.bias[int(elmo.bundle.vocabulary.ids([word])[0])] = bias
    names = ["storm", "bank", "river"]  # ranked river, bank, storm
    test = [target(2, names, [0.0, 0.4, 0.8]), target(2, names, [0.6, 0.0, 0.0])]
    found = score_swords(elmo, Swords([target(2, names, [0, 0.5, 1.0])], test), 0, no_progress)
    table = {(score.metric, score.method): score for score in found}
    gap = table["gap", "both"]
    assert gap.score == pytest.approx((1 + (0.6 / 3) / 0.6) / 2)
    assert (gap.n, gap.chosen) == (2, table["gap", "forward"].chosen is False)
    # acceptable: one of three in each target; all three are predicted
    assert table["f_acceptable@10", "both"].score == pytest.approx(2 * 2 / (6 + 2))
    assert table["f_conceivable@10", "both"].score == pytest.approx(2 * 3 / (6 + 3))
    assert found[0].metric == "gap"
    assert len({score.method for score in found if score.chosen}) == 1
