"""The suite as a whole: which sets are scored, skipped and absent."""

import json
from contextlib import contextmanager
from dataclasses import replace

import pytest

from elmore.embed.embedder import Embedder
from elmore.errors import ConfigError, DataError
from elmore.probe import estimates, linear_probe
from elmore.probe.suite import runner
from elmore.probe.suite.word_senses import read_sense_sets
from elmore.weights import folder
from tests.support import toy_suite
from tests.support.cli_runner import run_elmore
from tests.support.full_disk import fill_disk

KEYS = ["part", "split", "metric", "method", "chosen", "score", "low", "high", "n"]


@pytest.fixture
def progress():
    """Record the fractions of each set."""
    calls = {}

    @contextmanager
    def show(name):
        calls[name] = []
        yield lambda done, items: calls[name].append((done, items))

    show.calls = calls
    return show


def test_every_set_of_a_folder_is_scored(elmo, progress, tmp_path, monkeypatch):
    monkeypatch.setattr(estimates, "_RANK_RESAMPLES", 5)
    monkeypatch.setattr(linear_probe, "_NUM_EPOCHS", 1)
    toy_suite.write_all(tmp_path)
    data = runner.find_sets(tmp_path)
    assert list(data.contents) == list(runner.SETS)
    results = runner.score_sets(elmo, data, progress)
    assert list(results.scores) == list(runner.SETS)
    assert (results.skipped, results.absent) == ({}, [])
    for name, scores in results.scores.items():
        assert all(0 <= score.score <= 1 or score.metric == "spearman" for score in scores)
        assert any(score.chosen for score in scores), name
        calls = progress.calls[name]
        assert calls == sorted(calls), name
        assert calls[-1][0] == pytest.approx(1), name


def test_sets_that_are_not_named_are_neither_scored_nor_absent(elmo, progress, tmp_path):
    toy_suite.write_wic(tmp_path / "wic")
    toy_suite.write_sts(tmp_path / "sts")
    data = runner.find_sets(tmp_path, ["wic"])
    results = runner.score_sets(elmo, data, progress)
    assert list(results.scores) == ["wic"]
    assert results.absent == []


def test_a_named_set_whose_folder_is_missing_is_refused(tmp_path):
    toy_suite.write_wic(tmp_path / "wic")
    with pytest.raises(DataError, match="expected a folder 'sts' in it"):
        runner.find_sets(tmp_path, ["wic", "sts"])


def test_a_model_without_a_softmax_skips_blimp_by_name(elmo, progress, tmp_path):
    toy_suite.write_blimp(tmp_path / "blimp")
    bare = Embedder(replace(elmo.bundle, softmax=None), device="cpu")
    results = runner.score_sets(bare, runner.find_sets(tmp_path), progress)
    assert results.scores == {}
    assert "has no softmax" in results.skipped["blimp"]
    bare = Embedder(replace(elmo.bundle, softmax=None, lacks_softmax=True), device="cpu")
    results = runner.score_sets(bare, runner.find_sets(tmp_path), progress)
    assert "put the model's softmax.safetensors" in results.skipped["blimp"]


def test_an_unknown_set_and_an_empty_folder_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="there is no set 'glue'; the sets are blimp, wic"):
        runner.find_sets(tmp_path, ["glue"])
    with pytest.raises(DataError, match="expected a folder in it"):
        runner.find_sets(tmp_path)


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for name, found in (("nowhere", "nothing"), ("file", "a file")):
        for names in ([], ["wic"]):
            with pytest.raises(DataError, match=f"{name}: found {found}, expected a folder with"):
                runner.find_sets(tmp_path / name, names)


def test_the_senses_of_all_test_sets_come_first(tmp_path, elmo, progress):
    toy_suite.write_senses(tmp_path / "wsd")
    data = read_sense_sets(tmp_path / "wsd")
    assert data.sizes == {"ALL": 10, "senseval2": 10}
    scores = runner.score_sets(elmo, runner.SuiteData({"wsd": data}, []), progress).scores["wsd"]
    parts = [score.part for score in scores]
    assert parts == sorted(parts)  # all, then senseval2
    assert {"all", "senseval2"} == set(parts)
    assert scores[0].method == "first sense"
    assert scores[0].score == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("missing", "why"),
    [
        ("Evaluation_Datasets", "expected a folder for each test set"),
        ("wordnet-3.0", r"expected WordNet's index\.sense"),
    ],
)
def test_missing_files_of_the_senses_are_named(tmp_path, missing, why):
    toy_suite.write_senses(tmp_path / "wsd")
    (tmp_path / "wsd" / missing).rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match=why):
        read_sense_sets(tmp_path / "wsd")


@pytest.fixture
def model(elmo, tmp_path):
    folder.save(elmo.bundle, tmp_path / "model")
    return str(tmp_path / "model")


def test_the_command_prints_a_table_and_names_absent_sets(model, tmp_path):
    toy_suite.write_blimp(tmp_path / "data" / "blimp")
    toy_suite.write_wic(tmp_path / "data" / "wic")
    done = run_elmore("probe", "suite", model, "--data", str(tmp_path / "data"), "--device", "cpu")
    assert done.code == 0, done.err
    header, *rows, absent = done.out.splitlines()
    assert header.split("\t")[:6] == ["set", "part", "split", "metric", "method", "chosen"]
    cells = [row.split("\t") for row in rows]
    assert [row[4] for row in cells if row[:2] == ["blimp", "all"]] == [
        "forward",
        "backward",
        "both",
    ]
    assert [row[4] for row in cells if row[1] == "field syntax"] == ["both"]
    assert [row[4] for row in cells if row[0] == "wic"] == ["0", "1", "2", "average"]
    assert absent == "absent: swords, lexsub, sts, sick, pos, chunk, ner, wsd"


def test_the_command_draws_the_phenomena_of_blimp(model, tmp_path):
    toy_suite.write_blimp(tmp_path / "data" / "blimp")
    toy_suite.write_wic(tmp_path / "data" / "wic")
    picture = tmp_path / "blimp.svg"
    command = ("probe", "suite", model, "--data", str(tmp_path / "data"), "--device", "cpu")
    done = run_elmore(*command, "--only", "blimp", "-o", str(picture))
    assert done.code == 0, done.err
    drawn = picture.read_text()
    for name in ("all", "agreement", "quantifiers", "forward", "backward", "both", "GPT-2"):
        assert f">{name}</text>" in drawn, name
    assert "GPT-2: 83.0" in drawn  # all
    assert "GPT-2: 79.0" in drawn  # quantifiers; nobody published the agreement of this test
    picture.unlink()
    refused = run_elmore(*command, "--only", "wic", "-o", str(picture))
    assert (refused.code, refused.out) == (1, "")
    assert "draws BLiMP, which is not among the sets" in refused.err
    assert not picture.exists()


def test_the_command_prints_even_if_it_cannot_draw(model, tmp_path, monkeypatch):
    toy_suite.write_blimp(tmp_path / "data" / "blimp")
    command = ("probe", "suite", model, "--data", str(tmp_path / "data"), "--device", "cpu")
    printed = run_elmore(*command)
    fill_disk(monkeypatch)
    failed = run_elmore(*command, "-o", str(tmp_path / "blimp.svg"))
    assert (failed.code, failed.out) == (1, printed.out)
    assert failed.err.endswith(
        "blimp.svg: cannot be written (No space left on device); free some space, or pass another "
        "name\n"
    )


def test_the_command_gives_everything_as_json(model, tmp_path):
    toy_suite.write_blimp(tmp_path / "data" / "blimp")
    done = run_elmore(
        "probe", "suite", model, "--data", str(tmp_path / "data"), "--precision", "exact",
        "--device", "cpu", "--json"
    )  # fmt: skip
    found = json.loads(done.out)
    assert list(found) == ["model", "precision", "seed", "scores", "skipped", "absent"]
    assert (found["model"], found["precision"], found["seed"]) == (model, "exact", 0)
    assert all(list(row) == KEYS for row in found["scores"]["blimp"])
    assert len(found["scores"]["blimp"]) == 3 * (1 + 2 + 2)


def test_a_damaged_set_ends_the_command_before_the_model_is_loaded(tmp_path):
    toy_suite.write_blimp(tmp_path / "blimp")
    (tmp_path / "blimp" / "b1.jsonl").write_text("{\n")
    done = run_elmore("probe", "suite", "no-such-model", "--data", str(tmp_path))
    assert done.code == 1
    assert "b1.jsonl:1: not readable as JSON" in done.err
    assert "Traceback" not in done.err
