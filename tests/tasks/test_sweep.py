import json
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.errors import ConfigError, DataError
from elmore.tasks import checkpoint, registry, sweep
from elmore.tasks import train as train_module
from elmore.tasks.checkpoint import load_task
from elmore.tasks.data.datasets import Subset
from elmore.tasks.sweep import Trial, list_trials
from elmore.tasks.train import TrainingStoppedError
from elmore.train.fit import Report
from tests.support import toy_tasks

NER = registry.find_task("ner")


def recipe(*more):
    return registry.load_recipe(NER, None, [*toy_tasks.small("ner"), "train.epochs=2", *more])


def trained(tmp_path, chosen, *more, out="several", dev=None, embedder="none", **options):
    """Train all trials; return the reports of each."""
    data = toy_tasks.write("ner", tmp_path / "ner.txt")
    reports = {}
    sweep.train_sweep(
        NER, recipe(*more), data, dev or data, tmp_path / out, chosen, embedder=embedder,
        device="cpu", on_report=lambda trial, r: reports.setdefault(trial.name, []).append(r),
        **options,
    )  # fmt: skip
    return reports


def test_every_fraction_comes_with_every_seed_from_that_of_the_recipe_on():
    names = [t.name for t in list_trials(recipe("train.seed=3"), num_seeds=2, fractions=[0.1, 1.0])]
    assert names == [
        "fraction-0.1/seed-3",
        "fraction-0.1/seed-4",
        "fraction-1/seed-3",
        "fraction-1/seed-4",
    ]
    assert [t.name for t in list_trials(recipe(), num_seeds=2)] == ["seed-0", "seed-1"]
    assert [t.name for t in list_trials(recipe(), fractions=[0.5])] == ["fraction-0.5"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"num_seeds": 0}, "number of seeds must be at least 1, found 0"),
        ({"fractions": [0.0]}, "fraction must be above 0 and at most 1, found 0"),
        ({"fractions": [10.0]}, "found 10"),
        ({"fractions": [float("nan")]}, "found nan"),
        ({"fractions": [0.1, 0.1], "num_seeds": 2}, "fraction-0.1 would be trained twice"),
    ],
)
def test_invalid_training_settings_are_reported_in_one_sentence(asked, message):
    with pytest.raises(ConfigError, match=message):
        list_trials(recipe(), **asked)


@given(st.integers(1, 200), st.floats(0.001, 1), st.floats(0.001, 1), st.integers(0, 9))
def test_a_smaller_fraction_is_a_subset_of_a_larger_one(number, first, second, seed):
    some = list(range(number))
    small, large = (Subset(share, seed).of(some) for share in sorted((first, second)))
    assert set(small) <= set(large)
    assert small == sorted(small)
    assert len(large) == max(1, round(max(first, second) * number))
    assert Subset(1.0, seed).of(some) == Subset(None, seed).of(some) == some


def test_each_seed_draws_its_own_subsets():
    assert Subset(0.1, 0).of(range(100)) != Subset(0.1, 1).of(range(100))


def test_each_run_of_a_sweep_equals_a_single_run(tmp_path, bilm, runs):
    """Also on all of the examples; and the biLM reads the text once for all of them."""
    chosen = [Trial(3), Trial(4), Trial(4, 1.0), Trial(4, 0.5)]
    result = trained(tmp_path, chosen, "train.seed=3", embedder=f"elmo:{bilm}")
    assert list(result) == [trial.name for trial in chosen]
    assert runs == [20]
    data = tmp_path / "ner.txt"
    train_module.train(
        NER, recipe("train.seed=4"), data, data, tmp_path / "x", embedder=f"elmo:{bilm}",
        device="cpu",
    )  # fmt: skip
    weights = "best/model.safetensors"
    expected = (tmp_path / "x" / weights).read_bytes()
    assert (tmp_path / "several" / "seed-4" / weights).read_bytes() == expected
    assert (tmp_path / "several" / "fraction-1/seed-4" / weights).read_bytes() == expected
    assert (tmp_path / "several" / "seed-3" / weights).read_bytes() != expected
    half = tmp_path / "several" / "fraction-0.5" / "seed-4"
    described = json.loads((half / "recipe.json").read_text())
    assert described["data"]["examples"] == 10
    # of half the examples as many updates an epoch as 10 examples make; the labels are the whole's
    assert result["fraction-0.5/seed-4"][-1].num_steps == 4
    assert load_task(half).labels == load_task(tmp_path / "x").labels


def test_the_bilm_reads_what_some_training_sees_and_no_more(tmp_path, bilm, runs):
    """With two seeds, the two parts; as each seed draws the smaller part from its larger one."""
    chosen = list_trials(recipe(), num_seeds=2, fractions=[0.1, 0.25])
    dev = toy_tasks.write("ner", tmp_path / "dev.txt", 7)
    trained(tmp_path, chosen, embedder=f"elmo:{bilm}", dev=dev)
    seen = {i for seed in (0, 1) for i in Subset(0.25, seed).of(range(20))}
    assert 5 < len(seen) < 11  # two parts of 5 of the 20 sentences, which are distinct
    assert runs == [len(seen), 7]


def test_a_part_is_learned_the_same_whether_the_rest_has_layers_or_not(tmp_path, bilm):
    parts = list_trials(recipe(), num_seeds=2, fractions=[0.1, 0.25])
    small = trained(tmp_path, parts, embedder=f"elmo:{bilm}", out="small")
    large = trained(tmp_path, [*parts, Trial(0)], embedder=f"elmo:{bilm}", out="large")
    for trial in parts:
        assert [r.scores for r in small[trial.name]] == [r.scores for r in large[trial.name]]
        weights = f"{trial.name}/best/model.safetensors"
        expected = (tmp_path / "large" / weights).read_bytes()
        assert (tmp_path / "small" / weights).read_bytes() == expected


def test_means_and_standard_deviations_of_dev_and_test_are_written_down(tmp_path):
    chosen = list_trials(recipe(), num_seeds=3)
    test = toy_tasks.write("ner", tmp_path / "test.txt", 7)
    data, out = toy_tasks.write("ner", tmp_path / "ner.txt"), tmp_path / "several"
    options = {"embedder": "none", "device": "cpu", "test": test}
    result = sweep.train_sweep(NER, recipe("train.epochs=1"), data, data, out, chosen, **options)
    assert json.loads((out / "summary.json").read_text()) == result
    (together,) = result["summary"]
    assert together["num_runs"] == 3
    runs = [load_task(out / trial.name, device="cpu") for trial in chosen]
    alone = [trained.evaluate(test) for trained in runs]
    scores = [some["f1"] for some in alone]
    assert together["scores"]["test"]["f1"]["mean"] == pytest.approx(sum(scores) / 3)
    assert together["scores"]["test"]["f1"]["deviation"] == pytest.approx(statistics.stdev(scores))
    assert [row["scores"]["test"] for row in result["runs"]] == alone
    assert [row["scores"]["dev"] for row in result["runs"]] == [run.scores for run in runs]
    again = sweep.evaluate_sweep(out, test, device="cpu")
    assert again["summary"][0]["scores"]["data"] == together["scores"]["test"]


def test_deviations_are_those_of_samples_and_one_run_has_none():
    two = sweep.mean_std([{"f1": 1.0, "f1_a": 5.0}, {"f1": 4.0}])
    assert two == {"f1": {"mean": 2.5, "deviation": pytest.approx(4.5**0.5)}}
    assert sweep.mean_std([{"f1": 1.0}]) == {"f1": {"mean": 1.0, "deviation": None}}


def test_finished_runs_are_kept_and_missing_ones_start(tmp_path):
    trained(tmp_path, [Trial(0)])
    out = tmp_path / "several"
    weights = out / "seed-0" / "best" / "model.safetensors"
    before = weights.stat()
    with pytest.raises(DataError, match=r"holds runs already \(seed-0\); pass --resume"):
        trained(tmp_path, [Trial(0), Trial(1)])
    result = trained(tmp_path, [Trial(0), Trial(1)], resume=True)
    assert "seed-0" not in result
    assert result["seed-1"][-1].step == result["seed-1"][-1].num_steps
    assert weights.stat() == before
    with pytest.raises(ConfigError, match="another recipe"):
        trained(tmp_path, [Trial(0)], "model.hidden_dim=8", resume=True)


def test_folders_of_another_kind_are_refused(tmp_path):
    with pytest.raises(DataError, match="there is no run to resume"):
        trained(tmp_path, [Trial(0)], resume=True)
    trained(tmp_path, [Trial(0)])
    with pytest.raises(DataError, match="seed-0: is a single run; name another folder"):
        trained(tmp_path, [Trial(0)], out="several/seed-0")
    with pytest.raises(ConfigError, match=r"holds 1 trained runs; name one of them, as .*seed-0"):
        load_task(tmp_path / "several")


def test_runs_within_a_folder_come_in_the_order_of_their_numbers(tmp_path):
    names = ["fraction-0.01/seed-0", "fraction-0.1/seed-2", "fraction-0.1/seed-10", "fraction-1"]
    for name in reversed(names):
        (tmp_path / name / "best").mkdir(parents=True)
        (tmp_path / name / "best" / "config.json").write_text("{}")
    (tmp_path / "mine" / "best").mkdir(parents=True)
    (tmp_path / "mine" / "best" / "config.json").write_text("{}")
    assert checkpoint.find_runs(tmp_path) == names
    with pytest.raises(ConfigError, match="mine: no trained runs found"):
        sweep.evaluate_sweep(tmp_path / "mine", tmp_path / "data")


def test_a_signal_that_stops_one_ends_them_all(tmp_path, monkeypatch):
    def stopped(*_, **__):
        yield Report(1, 9, {}, {}, improved=False, stop_reason="SIGTERM", unit="tokens")

    monkeypatch.setattr(train_module, "fit", stopped)
    with pytest.raises(TrainingStoppedError, match="seed-0: stopped by SIGTERM"):
        trained(tmp_path, list_trials(recipe(), num_seeds=3))
    assert not (tmp_path / "several" / "seed-1").exists()
