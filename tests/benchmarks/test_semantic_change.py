"""benchmarks/semantic_change.py: its reader and its scores, on uses whose answer is known."""

import argparse
import runpy
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support import toy_tasks
from tests.support.scripts import ROOT

USES = "lemma\tgrouping\tidentifier\tcontext_tokenized\tindexes_target_token_tokenized\n"
JUDGMENTS = "identifier1\tidentifier2\tjudgment\n"


@pytest.fixture(scope="module")
def script():
    return SimpleNamespace(**runpy.run_path(str(ROOT / "benchmarks/semantic_change.py")))


@pytest.fixture
def folder(tmp_path):
    for lemma in ("head_nn", "plane_nn"):
        path = tmp_path / "data" / lemma
        path.mkdir(parents=True)
        rows = [f'{lemma}\t{1 + i % 2}\tu{i}\tthe " word {i} .\t2\n' for i in range(8)]
        (path / "uses.csv").write_text(USES + "".join(rows))
        pairs = [
            "u0\tu1\t4.0\n",
            "u1\tu0\t1.0\n",
            "u0\tu1\t1.0\n",
            "u2\tu3\t0.0\n",
            "u2\tu4\t3\n",
        ]
        (path / "judgments.csv").write_text(JUDGMENTS + "".join(pairs))
    (tmp_path / "stats/opt").mkdir(parents=True)
    gold = "lemma\tchange_graded\nhead_nn\t0.25\nplane_nn\t0.75\n"
    (tmp_path / "stats/opt/stats_groupings.csv").write_text(gold)
    return tmp_path


def test_uses_are_read_by_period_and_pairs_by_their_median(script, folder):
    head, plane = script.read_lemmas(folder)
    assert (head.name, head.graded_change, plane.graded_change) == ("head_nn", 0.25, 0.75)
    assert [use.tokens[3] for use in head.old] == ["0", "2", "4", "6"]
    assert head.old[0].tokens[head.old[0].position] == "word"
    # u0 and u1 are the first of both periods; what cannot be decided is left out
    assert head.pairs.tolist() == [[0, 4, 1], [1, 2, 3]]


def test_the_vectors_of_a_use_are_those_of_its_word(script, folder, tmp_path):
    lemmas = script.read_lemmas(folder)
    model = str(toy_tasks.bilm(tmp_path / "bilm"))
    options = argparse.Namespace(model=model, device="cpu", vectors=tmp_path / "kept.npy")
    names, vectors = script.embed(lemmas, options)
    assert names == ["0", "1", "2", "average", "cloze"]
    assert vectors.shape[:2] == (16, 5)
    np.testing.assert_allclose(vectors[:, 3], vectors[:, :3].mean(axis=1), atol=1e-6)
    assert (script.embed(lemmas, options)[1] == vectors).all()


def test_vectors_that_follow_the_judgements_are_perfect(script, rng):
    lemmas, vectors = [], []
    for number, change in enumerate((0.1, 0.5, 0.9)):
        angles = np.concatenate([rng.normal(0, 0.1, 12), rng.normal(change, 0.1, 12)])
        vectors.append(np.stack([np.cos(angles), np.sin(angles)], axis=1))
        pairs = np.array([(i, j, -abs(angles[i] - angles[j])) for i in range(12) for j in (13, 20)])
        use = script.Use(["a", "word"], 1, 0)
        lemmas.append(script.Lemma(str(number), [use] * 12, [use] * 12, pairs, change))
    scores = script.score_layer(lemmas, np.concatenate(vectors))
    for name in ("pairs", "pairs_by_lemma", "apd", "prt"):
        assert scores[name]["score"] == pytest.approx(1)
    assert scores["apd"]["n"] == 3
