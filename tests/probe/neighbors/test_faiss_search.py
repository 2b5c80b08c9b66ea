import sys

import numpy as np
import pytest

from elmore.embed.loading import load
from elmore.probe.neighbors import faiss_search, storage
from elmore.probe.neighbors.index import OccurrenceIndex
from tests.support import toy_corpus, toy_tasks

QUERIES = [line.split() for line in toy_corpus.sentences(30, seed=5)]


@pytest.fixture(scope="module")
def elmo(tmp_path_factory):
    return load(toy_tasks.bilm(tmp_path_factory.mktemp("model") / "bilm"), device="cpu")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(toy_corpus.sentences(500)))
    return path


@pytest.fixture
def faiss(monkeypatch):
    """Make a few thousand uses many."""
    monkeypatch.setattr(faiss_search, "MIN_OCCURRENCES", 1000)
    return pytest.importorskip("faiss")


def built(folder, elmo, text):
    return OccurrenceIndex.build(folder, elmo, [text], tokenized=True)


def recall(index) -> float:
    """Say how many of the ten nearest are found, by their similarity: many uses are equals here."""
    weights = []
    for row in range(0, len(index), 97):
        vector = np.asarray(index._columns.vectors("2")[row], np.float32)
        result, exact = (index.nearest_rows(vector, 10, exact=exact) for exact in (False, True))
        weights.append((result.similarities >= exact.similarities[-1] - 1e-6).mean())
    return float(np.mean(weights))


def test_most_of_the_nearest_are_found_and_their_similarity_is_exact(
    tmp_path, elmo, text, faiss, monkeypatch
):
    index = built(tmp_path / "index", elmo, text)
    assert (tmp_path / "index" / "layer-2.faiss").is_file()
    monkeypatch.setattr(faiss_search, "_NPROBE", 8)  # of 128 lists
    index = OccurrenceIndex.open(tmp_path / "index", elmo)
    assert recall(index) > 0.9
    for query in QUERIES[:2]:
        for use in index.search(query, 0, 5):
            assert use.tokens != query
            (exact,) = (
                one.similarity
                for one in index.search(query, 0, len(index), word=use.word)
                if one[1:3] == use[1:3] and one.line == use.line
            )
            assert use.similarity == pytest.approx(exact, abs=1e-6)


def test_a_search_costs_the_comparisons_it_makes_two_for_each_in_faiss(
    tmp_path, elmo, text, faiss, monkeypatch
):
    monkeypatch.setattr(faiss_search, "_NPROBE", 8)
    index = built(tmp_path / "index", elmo, text)
    size, lists = len(index), faiss_search.num_lists(len(index))
    in_faiss = 2 * (lists + round(size * 8 / lists))
    assert index.search_cost == in_faiss
    more = tmp_path / "more.txt"
    more.write_text("the zebra sleeps near the lake\n")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "faiss", None)
        index.append([more], tokenized=True)
        assert index.search_cost == len(index) == size + 6  # all of them
    assert OccurrenceIndex.open(tmp_path / "index", elmo).search_cost == in_faiss + 6


def test_appended_text_is_found_too(tmp_path, elmo, text, faiss):
    index = built(tmp_path / "index", elmo, text)
    more = tmp_path / "more.txt"
    more.write_text("the zebra sleeps near the lake\n")
    index.append([more], tokenized=True)
    (entry,) = storage.read_manifest(tmp_path / "index").approximate
    assert entry.uses == len(index)
    zebra = len(index) - 5
    assert index.occurrence(zebra).word == "zebra"
    vector = np.asarray(index._columns.vectors("2")[zebra], np.float32)
    assert index.nearest_rows(vector, 1).rows == [zebra]


def test_k_may_be_the_number_of_all_occurrences(tmp_path, elmo, text, faiss):
    index = built(tmp_path / "index", elmo, text)
    for k in (2 * len(index), 10**12):  # faiss would allocate room for all of them
        assert len(index.search(["it"], 0, k)) == len(index)


def test_few_occurrences_need_no_faiss(tmp_path, elmo, text):
    index = built(tmp_path / "index", elmo, text)
    assert not (tmp_path / "index" / "layer-2.faiss").exists()
    assert len(index.search(QUERIES[0], 0)) == 10


def test_without_faiss_the_search_is_exact_and_says_so(
    tmp_path, elmo, text, faiss, monkeypatch, caplog
):
    exact = built(tmp_path / "exact", elmo, text)
    expected = exact.nearest_rows(np.ones(elmo.width, np.float32), 10, exact=True)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with caplog.at_level("WARNING"):
        index = OccurrenceIndex.open(tmp_path / "exact", elmo)
        for _ in range(3):
            result = index.nearest_rows(np.ones(elmo.width, np.float32), 10)
    assert result.rows.tolist() == expected.rows.tolist()
    (line,) = caplog.messages
    assert "for faster search: pip install 'elmore[index]'" in line


def test_an_index_built_without_faiss_gets_it_when_the_command_is_given_again(
    tmp_path, elmo, text, faiss, monkeypatch, caplog
):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "faiss", None)
        built(tmp_path / "index", elmo, text)
    assert "faiss is not installed" in caplog.text
    assert not (tmp_path / "index" / "layer-2.faiss").exists()
    built(tmp_path / "index", elmo, text)
    assert (tmp_path / "index" / "layer-2.faiss").is_file()


def test_a_truncated_faiss_file_is_ignored_and_rebuilt_by_the_same_command(
    tmp_path, elmo, text, faiss, caplog
):
    built(tmp_path / "index", elmo, text)
    path = tmp_path / "index" / "layer-2.faiss"
    data = path.read_bytes()
    path.write_bytes(data[:-100])
    index = OccurrenceIndex.open(tmp_path / "index", elmo)
    assert len(index.search(QUERIES[0], 0)) == 10
    assert "layer-2.faiss: missing or truncated; searching exactly" in caplog.text
    built(tmp_path / "index", elmo, text)
    assert path.stat().st_size == len(data)


def test_the_number_of_lists_is_about_twice_the_root_of_the_occurrences():
    assert [faiss_search.num_lists(number) for number in (1000, 200_000, 1_000_000)] == [
        64,
        1024,
        2048,
    ]


@pytest.mark.parametrize("damage", [b"\0", b"\xff", b"Ix"])
def test_a_file_that_faiss_cannot_read_is_passed_over(tmp_path, elmo, text, faiss, caplog, damage):
    index = built(tmp_path / "index", elmo, text)
    vector = np.asarray(index._columns.vectors("2")[3], np.float32)
    expected = index.nearest_rows(vector, 5, exact=True)
    path = tmp_path / "index" / "layer-2.faiss"
    size = path.stat().st_size
    path.write_bytes((damage * size)[:size])
    result = OccurrenceIndex.open(tmp_path / "index", elmo).nearest_rows(vector, 5)
    np.testing.assert_array_equal(result.rows, expected.rows)
    assert "layer-2.faiss: damaged; searching exactly" in caplog.text
