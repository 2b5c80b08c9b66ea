"""Clusters and their scores, beside scikit-learn's."""

import numpy as np
import pytest
import sklearn.cluster
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st

from elmore.errors import ConfigError
from elmore.probe import clustering
from elmore.probe.clustering import cluster_points, k_means, silhouette
from elmore.probe.occurrence_map import adjusted_rand


def squares(points, labels):
    inside = [points[labels == cluster] for cluster in np.unique(labels)]
    return sum(float(np.square(some - some.mean(axis=0)).sum()) for some in inside)


def test_clusters_are_as_tight_as_those_of_scikit_learn(rng):
    points = rng.normal(size=(120, 5))
    for count in (1, 2, 5, 8):
        theirs = sklearn.cluster.KMeans(count, n_init=10, random_state=0).fit(points).inertia_
        assert squares(points, k_means(points, count)) < 1.03 * theirs


@pytest.mark.parametrize("block", [7, 1024])
def test_the_silhouette_is_that_of_scikit_learn(rng, monkeypatch, block):
    monkeypatch.setattr(clustering, "_BLOCK", block)
    points = rng.normal(size=(30, 3))
    labels = np.array([0] * 10 + [3] * 19 + [7])  # one is alone
    assert silhouette(points, labels) == pytest.approx(
        sklearn.metrics.silhouette_score(points, labels)
    )


def test_one_cluster_and_one_for_each_point_have_no_silhouette(rng):
    points = rng.normal(size=(5, 2))
    assert silhouette(points, np.zeros(5, int)) is None
    assert silhouette(points, np.arange(5)) is None


def test_no_more_clusters_are_tried_than_allowed(rng):
    points = np.repeat(rng.normal(size=(6, 2)), 3, axis=0) + rng.normal(size=(18, 2)) / 1000
    assert [cluster_points(points, most=most)[0].max() + 1 for most in (2, 8)] == [2, 6]


def test_equal_points_are_one_cluster():
    labels, score = cluster_points(np.ones((6, 2)))
    assert (labels.tolist(), score) == ([0] * 6, None)


def test_more_clusters_than_points_that_differ_are_refused():
    with pytest.raises(ConfigError, match="only 2 occurrences differ; pass 1 to 2"):
        cluster_points(np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]]), 3)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_the_adjusted_rand_index_is_that_of_scikit_learn(known):
    senses, clusters = zip(*known, strict=True)
    theirs = sklearn.metrics.adjusted_rand_score(senses, clusters)
    assert adjusted_rand(known) == pytest.approx(theirs, abs=1e-12)
