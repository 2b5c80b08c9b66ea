"""Uses of words that lie where a test puts them."""

import json
import sys
from collections import Counter
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.errors import ConfigError, DataError
from elmore.probe import occurrence_map, occurrences, plots
from elmore.probe.drawing import files
from elmore.probe.occurrences import Occurrence
from elmore.probe.wordnet import TOPICS, describe_sense
from tests.support import toy_tasks
from tests.support.cli_runner import run_elmore
from tests.support.full_disk import fill_disk
from tests.support.sense_corpus import write_corpus

RIVER, MONEY = "bank%1:17:01::", "bank%1:14:00::"
SVG = "{http://www.w3.org/2000/svg}"


def blobs(*sizes, width=6, apart=8.0):
    """Points around as many corners, and the corner of each."""
    chance = np.random.default_rng(0)
    corners = [corner for corner, size in enumerate(sizes) for _ in range(size)]
    middle = np.eye(width)[corners] * apart
    return middle + chance.normal(size=(len(corners), width)), corners


def some_uses(corners, senses=None):
    return [
        Occurrence(["the", f"word{c}", "."], 1, 2, senses[c] if senses else None) for c in corners
    ]


def test_clusters_are_found_and_counted_by_themselves():
    points, corners = blobs(12, 9, 5)
    result = occurrence_map.map_occurrences("w", some_uses(corners), points, layers="2")
    assert result.num_clusters == 3
    assert [use.cluster for use in result.uses] == corners  # the largest is cluster 0
    assert result.silhouette > 0.5
    assert (result.purity, result.adjusted_rand) == (None, None)


def test_senses_are_compared_with_clusters_that_do_not_know_them():
    points, corners = blobs(10, 10)
    same = occurrence_map.map_occurrences(
        "w", some_uses(corners, [RIVER, MONEY]), points, layers="2"
    )
    assert (same.purity, same.adjusted_rand) == (1.0, 1.0)
    one = occurrence_map.map_occurrences(
        "w", some_uses(corners, [RIVER, RIVER]), points, layers="2"
    )
    assert one.purity == 1.0
    assert one.adjusted_rand == 0.0  # two clusters where there is one sense


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_purity_is_the_share_of_the_commonest_sense_of_each_cluster(known):
    right = 0
    for cluster in {cluster for _, cluster in known}:
        inside = [sense for sense, own in known if own == cluster]
        right += Counter(inside).most_common(1)[0][1]
    assert occurrence_map.purity(known) == right / len(known)


def test_the_plane_of_pca_keeps_the_distances_of_what_lies_in_a_plane():
    chance = np.random.default_rng(1)
    angles = chance.uniform(0, 2 * np.pi, size=12)
    vectors = np.zeros((12, 5))
    vectors[:, 1], vectors[:, 3] = np.cos(angles), np.sin(angles)
    result = occurrence_map.map_occurrences(
        "w", some_uses([0] * 12), vectors, layers="1", num_clusters=1
    )
    assert sum(result.variance) == pytest.approx(1)
    placed = np.array([(use.x, use.y) for use in result.uses])
    centred = vectors - vectors.mean(axis=0)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    for i in range(12):
        distance = np.linalg.norm(placed[i] - placed[0])
        assert distance == pytest.approx(np.linalg.norm(unit[i] - unit[0]), abs=1e-6)


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_the_same_seed_gives_the_same_map(method):
    points, corners = blobs(6, 6)
    one, other = (
        occurrence_map.map_occurrences(
            "w", some_uses(corners), points, layers="2", method=method, seed=3
        )
        for _ in range(2)
    )
    assert one == other
    assert (one.variance is None) == (method == "tsne")


@pytest.mark.parametrize("number", [2, 3])
def test_few_or_equal_occurrences_form_one_cluster(number):
    same = occurrence_map.map_occurrences(
        "w", some_uses([0] * number), np.ones((number, 4)), layers="0"
    )
    assert (same.num_clusters, same.silhouette) == (1, None)
    two = occurrence_map.map_occurrences("w", some_uses([0, 1]), np.eye(2), layers="0")
    assert two.num_clusters == 1
    assert sorted(use.x for use in two.uses) == pytest.approx([-1, 1])


def test_two_kinds_of_uses_that_are_each_the_same_are_two_clusters():
    vectors = np.repeat(np.eye(4)[:2], 5, axis=0)
    drawn = occurrence_map.map_occurrences("w", some_uses([0] * 5 + [1] * 5), vectors, layers="0")
    assert drawn.num_clusters == 2
    assert drawn.silhouette == pytest.approx(1.0)


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_equal_occurrences_have_equal_coordinates(method):
    drawn = occurrence_map.map_occurrences(
        "w", some_uses([0] * 6), np.ones((6, 4)), layers="0", method=method
    )
    assert {(placed.x, placed.y) for placed in drawn.uses} == {(0.0, 0.0)}


def test_too_few_occurrences_are_refused():
    points, corners = blobs(3)
    with pytest.raises(ConfigError, match="--clusters 9: only 3 occurrences differ"):
        occurrence_map.map_occurrences("w", some_uses(corners), points, layers="2", num_clusters=9)
    with pytest.raises(DataError, match="t-SNE needs four occurrences or more, found 3"):
        occurrence_map.map_occurrences("w", some_uses(corners), points, layers="2", method="tsne")


def test_an_occurrence_of_several_tokens_is_their_mean():
    class Embedder:
        def stream(self, texts, *, layers):
            for words in texts:
                yield SimpleNamespace(vectors=np.arange(2.0 * len(words)).reshape(-1, 2))

    (result,) = occurrence_map.embed_occurrences(Embedder(), [Occurrence(["a", "b", "c"], 1, 3)], 1)
    assert result.tolist() == [3.0, 4.0]  # of (2, 3) and (4, 5)
    with pytest.raises(ConfigError, match="one vector per occurrence"):
        occurrence_map.embed_occurrences(Embedder(), [], "all")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("The bank closed. Banks fail.\nA BANK of sand\nno such word\n")
    return str(path)


@pytest.fixture
def annotated(tmp_path):
    def bank(gold):
        return ("banks", "bank", "NOUN", gold)

    sentences = [["old", bank(RIVER)], [bank(f"{MONEY} {RIVER}"), "fail"], ["oars", "x"]]
    sentences += [["by", "the", bank(RIVER)], ["rich", bank(MONEY)], ["two", bank(MONEY), "."]]
    return str(write_corpus(tmp_path, "uses", [sentences]))


def test_occurrences_are_found_in_plain_text_whatever_their_case(text):
    result, total = occurrences.find_occurrences("bank", [text], max_uses=10)
    assert total == 2
    assert [use.tokens[use.start] for use in result] == ["bank", "BANK"]
    assert all(use.sense is None for use in result)


def test_occurrences_are_found_in_annotated_text_in_any_inflection(annotated, text):
    result, total = occurrences.find_occurrences("Bank", [annotated, text], max_uses=10)
    assert [use.sense for use in result] == [RIVER, MONEY, RIVER, MONEY, MONEY, None, None]
    assert total == 7
    few, total = occurrences.find_occurrences("bank", [annotated, text], max_uses=3)
    assert (len(few), total) == (3, 7)


@pytest.mark.parametrize(("word", "often"), [("xyzzy", "nowhere"), ("closed", "only once")])
def test_a_word_that_is_not_there_or_only_once_is_refused(text, word, often):
    with pytest.raises(DataError, match=rf"'{word}' occurs {often} in .*text.txt"):
        occurrences.find_occurrences(word, [text], max_uses=10)


def test_a_sense_key_says_what_it_is_about():
    # lexnames(5WN): 08 is noun.body, 38 verb.motion; 45 files in all
    assert len(TOPICS) == 45
    assert describe_sense("head%1:08:00::") == "noun body (head%1:08:00)"
    assert describe_sense("run%2:38:00::") == "verb motion (run%2:38:00)"
    assert describe_sense("fast%4:02:01::") == "adv. (fast%4:02:01)"
    assert describe_sense("my own label") == "my own label"


def drawn_points(svg):
    root = ElementTree.fromstring(svg)
    return [node for node in root.iter() if node.get("data-series")]


def test_the_figure_has_a_mark_for_each_use_and_its_sentence_beside_it():
    points, corners = blobs(5, 4)
    result = occurrence_map.map_occurrences(
        "a<b", some_uses(corners, [RIVER, MONEY]), points, layers="2"
    )
    marks = drawn_points(plots.occurrence_map(result).svg(standalone=True))
    assert len(marks) == 9
    series = Counter(mark.get("data-series") for mark in marks)
    assert series == {f"{describe_sense(RIVER)}: 5": 5, f"{describe_sense(MONEY)}: 4": 4}
    notes = [mark.find(f"{SVG}title").text for mark in marks]
    assert notes.count(f"the [word0] .\n{RIVER}") == 5


def test_more_senses_than_colours_share_one():
    points, corners = blobs(*[2] * 12, width=14)
    senses = [f"w%1:{n:02}:00::" for n in range(12)]
    result = occurrence_map.map_occurrences("w", some_uses(corners, senses), points, layers="2")
    series = Counter(
        mark.get("data-series") for mark in drawn_points(plots.occurrence_map(result).svg())
    )
    assert len(series) == 8
    assert series["other senses: 10"] == 10


def test_the_command_draws_writes_and_prints(annotated, tmp_path):
    model = str(toy_tasks.bilm(tmp_path / "bilm"))
    command = ("probe", "uses", "bank", annotated, "--model", model, "--device", "cpu")
    out = tmp_path / "bank.svg"
    out.write_text("an earlier figure")
    done = run_elmore(*command, "-o", str(out))
    assert done.code == 0, done.err
    head, *rows = done.out.splitlines()
    assert head.split("\t")[:3] == ["cluster", "uses", "commonest sense"]
    assert rows[-1].startswith("5 uses, ")
    assert "adjusted Rand index" in rows[-1]
    assert len(drawn_points(out.read_text())) == 5
    result = json.loads(run_elmore(*command, "-o", str(tmp_path / "bank.png"), "--json").out)
    assert (tmp_path / "bank.png").read_bytes().startswith(b"\x89PNG")
    assert [use["sense"] for use in result["uses"]] == [RIVER, MONEY, RIVER, MONEY, MONEY]
    assert result["layers"] == "2"


def test_the_command_prints_even_if_it_cannot_draw(annotated, tmp_path, monkeypatch):
    model = str(toy_tasks.bilm(tmp_path / "bilm"))
    command = ("probe", "uses", "bank", annotated, "--model", model, "--device", "cpu")
    printed = run_elmore(*command)
    fill_disk(monkeypatch)
    failed = run_elmore(*command, "-o", str(tmp_path / "bank.svg"))
    assert (failed.code, failed.out) == (1, printed.out)
    assert failed.err == (
        f"elmore: {tmp_path / 'bank.svg'}: cannot be written (No space left on device); free some "
        "space, or pass another name\n"
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("-o", "map.pdf"), "expected .svg or .png"),
        (("-o", "nowhere/map.svg"), "in an existing folder"),
        (("--layers", "9"), "this model has layers 0 to 2"),
        (("--layers", "all"), "one vector per occurrence"),
    ],
)
def test_the_command_refuses_in_one_sentence(annotated, tmp_path, more, message):
    model = str(toy_tasks.bilm(tmp_path / "bilm"))
    done = run_elmore("probe", "uses", "bank", annotated, "--model", model, *more)
    assert (done.code, done.out) == (1, "")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_a_missing_package_is_named(monkeypatch):
    points, corners = blobs(4, 4)
    result = occurrence_map.map_occurrences("w", some_uses(corners), points, layers="2")
    for name in [name for name in sys.modules if name.split(".")[0] in ("sklearn", "matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(DataError, match=r"needs scikit-learn: pip install 'elmore\[viz\]'"):
        occurrence_map.map_occurrences("w", some_uses(corners), points, layers="2", method="tsne")
    again = occurrence_map.map_occurrences("w", some_uses(corners), points, layers="2")
    assert again == result  # PCA and clusters need neither
    with pytest.raises(DataError, match=r"matplotlib: pip install 'elmore\[viz\]'; .svg needs"):
        files.render_png(plots.occurrence_map(result))
    assert plots.occurrence_map(result).svg()
