import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.probe.cosine import normalize
from elmore.probe.neighbors import exact_search

NONE = np.zeros(0, np.int64)


def vectors(seed: int, number: int, width: int = 8) -> np.ndarray:
    drawn = np.random.default_rng(seed).standard_normal((number, width))
    return normalize(drawn).astype(np.float16)


def naive(stored, query, rows, k) -> list[int]:
    """Sort all cosines; of equals the first."""
    query = query.astype(np.float64) / np.linalg.norm(query)
    cosines = [float(stored[row].astype(np.float64) @ query) for row in rows]
    return [rows[at] for at in sorted(range(len(rows)), key=lambda at: (-cosines[at], rows[at]))][
        :k
    ]


@given(st.integers(0, 99), st.integers(1, 60), st.integers(1, 70), st.data())
def test_exact_search_is_a_sort_of_all_cosines(seed, number, k, data):
    stored, query = vectors(seed, number), vectors(seed + 1, 1)[0].astype(np.float32)
    rows = st.sets(st.integers(0, number - 1)).map(sorted)
    without, among = data.draw(rows), data.draw(st.none() | rows)
    result = exact_search.search(
        stored,
        normalize(query),
        k,
        among=None if among is None else np.array(among, np.int64),
        exclude=np.array(without, np.int64),
    )
    left = [row for row in (range(number) if among is None else among) if row not in without]
    assert result.rows.tolist() == naive(stored, query, left, k)
    cosines = stored[result.rows].astype(np.float64) @ query / np.linalg.norm(query)
    np.testing.assert_allclose(result.similarities, cosines, atol=1e-5)


def test_more_rows_than_a_block_are_searched_as_well(monkeypatch):
    monkeypatch.setattr(exact_search, "_BLOCK", 7)
    stored, query = vectors(0, 100), vectors(1, 1)[0].astype(np.float32)
    expected = naive(stored, query, list(range(100)), 5)
    assert exact_search.search(stored, query, 5, exclude=NONE).rows.tolist() == expected
    among = np.arange(100)
    assert (
        exact_search.search(stored, query, 5, among=among, exclude=NONE).rows.tolist() == expected
    )


def test_ties_go_to_the_first():
    stored = np.ones((6, 4), np.float16) / 2
    result = exact_search.search(stored, np.ones(4, np.float32) / 2, 3, exclude=np.array([1]))
    assert result.rows.tolist() == [0, 2, 3]
    assert result.similarities == pytest.approx([1.0] * 3)


def test_a_zero_has_no_direction_and_no_error():
    assert not normalize(np.zeros((2, 3), np.float32)).any()
