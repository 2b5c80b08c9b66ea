import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.tasks.coref import metric
from elmore.tasks.coref.assignment import maximize_assignment

# The example of the scorer's paper (Pradhan et al., 2014), where e is missed and h, i are invented
KEY = ["abc", "defg"]
RESPONSE = ["ab", "cd", "fghi"]


def close(value: float):
    return pytest.approx(100 * value, abs=1e-9)


def test_muc_of_the_scorers_example():
    scores = metric.score([KEY], [RESPONSE])
    # Links of the key: 2 + 3. abc falls into ab | c: 3 - 2 = 1. defg into d | e | fg: 4 - 3 = 1.
    assert scores["muc_recall"] == close((1 + 1) / (2 + 3))  # 0.40
    # Links of the response: 1 + 1 + 3. ab stays: 1. cd into c | d: 0. fghi into fg | h | i: 1.
    assert scores["muc_precision"] == close((1 + 0 + 1) / (1 + 1 + 3))  # 0.40
    assert scores["muc"] == close(0.40)


def test_b3_of_the_scorers_example():
    scores = metric.score([KEY], [RESPONSE])
    # abc: a and b have 2 of 3 together, c has 1 of 3. defg: d 1 of 4, e 0, f and g 2 of 4.
    assert scores["b3_recall"] == close((2 / 3 + 2 / 3 + 1 / 3 + 1 / 4 + 0 + 2 / 4 + 2 / 4) / 7)
    assert scores["b3_recall"] == close(35 / 84)  # 0.42
    # ab: 2 of 2 each. cd: 1 of 2 each. fghi: f and g 2 of 4, h and i 0.
    assert scores["b3_precision"] == close((1 + 1 + 1 / 2 + 1 / 2 + 2 / 4 + 2 / 4 + 0 + 0) / 8)
    assert scores["b3_precision"] == close(0.50)
    assert scores["b3"] == close(2 * 0.5 * (35 / 84) / (0.5 + 35 / 84))  # 0.45


def test_ceafe_of_the_scorers_example():
    scores = metric.score([KEY], [RESPONSE])
    # 2 |K & R| / (|K| + |R|):      ab         cd         fghi
    #                       abc     4/5        2/5        0
    #                       defg    0          2/6        4/8
    # The best pairs are abc with ab and defg with fghi: 4/5 + 4/8 = 1.3.
    assert scores["ceafe_recall"] == close(1.3 / 2)  # 0.65
    assert scores["ceafe_precision"] == close(1.3 / 3)  # 0.43
    assert scores["ceafe"] == close(2 * 1.3 / (2 + 3))  # 0.52


def test_the_average_and_the_mentions_of_the_scorers_example():
    scores = metric.score([KEY], [RESPONSE])
    b3 = 2 * 0.5 * (35 / 84) / (0.5 + 35 / 84)
    assert scores["average"] == close((0.40 + b3 + 0.52) / 3)
    # a to g but e are found, beside h and i
    assert scores["mentions_recall"] == close(6 / 7)
    assert scores["mentions_precision"] == close(6 / 8)


def test_a_cluster_that_is_split():
    scores = metric.score([["abcd"]], [["ab", "cd"]])
    # MUC: abcd has 3 links and falls into 2 pieces, so 2 of 3 are kept; ab and cd keep theirs
    assert (scores["muc_recall"], scores["muc_precision"]) == (close(2 / 3), close(1))
    # B3: each mention has 2 of the 4 of its true cluster, and all of its found one
    assert (scores["b3_recall"], scores["b3_precision"]) == (close(1 / 2), close(1))
    # CEAFe: one pair, 2 * 2 / (4 + 2) = 2/3, of 1 true and 2 found clusters
    assert (scores["ceafe_recall"], scores["ceafe_precision"]) == (close(2 / 3), close(1 / 3))


def test_documents_are_added_up_and_not_averaged():
    scores = metric.score([KEY, ["xy"]], [RESPONSE, []])
    # The second adds a link, two mentions and a cluster to the key, and nothing that is right.
    assert scores["muc_recall"] == close(2 / (5 + 1))
    assert scores["b3_recall"] == close((35 / 12) / (7 + 2))
    assert scores["ceafe_recall"] == close(1.3 / (2 + 1))
    assert scores["muc_precision"] == close(2 / 5)


def test_the_same_letters_in_two_documents_are_different_mentions():
    scores = metric.score([["ab"], []], [[], ["ab"]])
    assert scores["average"] == 0
    assert scores["mentions"] == 0


def test_nothing_is_zero_and_not_an_error():
    assert set(metric.score([[]], [[]]).values()) == {0.0}


clusterings = st.lists(st.integers(0, 4), min_size=1, max_size=9).map(
    lambda labels: [
        [index for index, label in enumerate(labels) if label == which]
        for which in sorted(set(labels))
        if labels.count(which) > 1
    ]
)


@given(clusterings)
def test_gold_predictions_score_100(clusters):
    scores = metric.score([clusters], [[cluster[::-1] for cluster in clusters[::-1]]])
    assert set(scores.values()) == ({100.0} if clusters else {0.0})


@given(clusterings, clusterings)
def test_precision_is_recall_the_other_way_round(one, other):
    there, back = metric.score([one], [other]), metric.score([other], [one])
    for name in ("muc", "b3", "ceafe", "mentions"):
        assert there[f"{name}_recall"] == pytest.approx(back[f"{name}_precision"])
        assert there[name] == pytest.approx(back[name])


@given(st.integers(0, 4), st.integers(0, 4), st.randoms(use_true_random=False))
def test_the_best_pairs_are_the_best_of_all_that_can_be_made(num_rows, num_columns, random):
    worth = np.array([[random.randrange(4) for _ in range(num_columns)] for _ in range(num_rows)])
    worth = worth.reshape(num_rows, num_columns).astype(float)
    turned = worth if num_rows <= num_columns else worth.T
    best = max(
        sum(turned[row, column] for row, column in enumerate(columns))
        for columns in itertools.permutations(range(turned.shape[1]), len(turned))
    )
    pairs = maximize_assignment(worth)
    assert sum(worth[pair] for pair in pairs) == best
    assert len({row for row, _ in pairs}) == len({column for _, column in pairs}) == len(turned)


def test_the_best_pairs_are_worth_what_scipy_finds(rng):
    optimize = pytest.importorskip("scipy.optimize")
    for size in ((1, 1), (3, 7), (30, 20), (60, 60)):
        worth = rng.random(size) * (rng.random(size) < 0.3)
        expected = worth[optimize.linear_sum_assignment(worth, maximize=True)].sum()
        assert sum(worth[pair] for pair in maximize_assignment(worth)) == pytest.approx(expected)
