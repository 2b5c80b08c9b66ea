"""The protocol of benchmarks/paper.py: its plan, its test, its page and figures, its commands."""

import importlib
import itertools
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks/results/paper_h200_2026-11-16.md"
MODULES = (
    *("grid", "paper", "paper_bootstrap", "paper_cells", "paper_cost", "paper_figures"),
    *("paper_checks", "paper_page", "fasttext_vectors", "model_quality", "data_folder"),
    "elmore_command",
)


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    """The script as a module; it names the folder of the data, but reads none here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        patch.setenv("ELMORE_DATA", str(tmp_path_factory.mktemp("data")))
        yield importlib.import_module("paper")
        for name in MODULES:
            sys.modules.pop(name, None)


@pytest.fixture
def cells(paper):
    return sys.modules["paper_cells"]


@pytest.fixture
def plan(cells):
    return cells.Plan({})


@pytest.fixture
def page(paper):
    return lambda plan: paper.page(plan, Path("made-up"))


def keep(plan, cell, score, *, seconds=60.0, device="H200", at_once=1, items=40, **more):
    """Make up the result of a cell; its counts are those of an accuracy."""
    right = round(items * score / 100)
    plan.found[cell.name] = {
        **{"name": cell.name, **cell._asdict()},
        **sys.modules["paper"].describe(cell, "english"),
        **{"command": "elmore task train", "seconds": seconds, "device": device},
        **{"at_once": at_once, "dev": float(score), "test": float(score), "scores": {}},
        **{"layers": {}, "curve": [[10, 1.0]], "converged": True},
        "counts": [[1] * right + [0] * (items - right), [1] * items],
        **more,
    }


def tune(plan, task, column, best=0):
    """Make up the trials of a column."""
    for number, cell in enumerate(plan.trials(task, column)):
        keep(plan, cell, 50.0 + 10 * (number == best))


def run_seeds(plan, task, column, scores, **more):
    tune(plan, task, column)
    for cell, score in zip(plan.runs(task, column), scores, strict=False):
        keep(plan, cell, score, **more)


def row(page: str, section: str, *starts: str) -> list[str]:
    """The cells of a table's row after those that it starts with."""
    part = page.split(f"## {section}", 1)[1].split("\n## ", 1)[0]
    (line,) = [x for x in part.splitlines() if x.startswith(f"| {' | '.join(starts)}")]
    return [cell.strip() for cell in line.strip("|").split("|")][len(starts) :]


def test_every_column_has_the_same_trials_of_rate_and_frozen_vectors(plan, cells):
    trials = {c: [cell.settings for cell in plan.trials("snli", c)] for c in cells.COLUMNS}
    assert set(map(tuple, trials.values())) == {
        tuple(
            (f"train.lr={rate}", f"words.freeze={freeze}")
            for rate in ("0.001", "0.0004")
            for freeze in ("true", "false")
        )
    }


def test_seeds_wait_for_all_trials_of_their_column_and_use_the_best_on_dev(plan, cells):
    alone = plan._replace(tasks=["snli"], columns=("static", "elmo"))
    for number, cell in enumerate(plan.trials("snli", "elmo")):
        assert cells.table1(alone) == [*plan.trials("snli", "static"), *plan.trials("snli", "elmo")]
        keep(plan, cell, (10, 30, 30, 20)[number], test=0.0)
    *trials, a, b, c, d, e = cells.table1(alone)
    assert trials == plan.trials("snli", "static")
    assert [cell.seed for cell in (a, b, c, d, e)] == [0, 1, 2, 3, 4]
    assert a == plan.trials("snli", "elmo")[1]  # the first of the best; it is run once


def test_a_trial_that_diverged_is_not_chosen(plan):
    tune(plan, "srl", "static", best=1)
    bad = plan.trials("srl", "static")[1]
    plan.found[bad.name] = {"failed": "the loss diverged", "settings": bad.all_settings()}
    assert plan.tuned("srl", "static") == plan.trials("srl", "static")[0].settings


def test_a_choice_that_the_recipe_makes_already_is_the_run_of_table_1(plan):
    tune(plan, "snli", "elmo")
    same, other = (
        plan.runs("snli", "elmo", f"elmo.insert_at={where}")[1] for where in ("both", "output")
    )
    assert same == plan.runs("snli", "elmo")[1]
    assert other.settings[-1] == "elmo.insert_at=output"


def test_every_setting_of_the_protocol_is_one_of_its_task(plan, cells):
    for task in cells.TASKS:
        kind = cells.task_class(task)
        for cell in plan.trials(task, "elmo"):
            name = cells.recipe_name(task)
            recipe = cells.registry.load_recipe(kind, name, cell.all_settings())
            assert (recipe.train.schedule, recipe.train.patience) == ("plateau", 6)


def test_conll_2003_is_run_on_request_alone(plan, cells):
    assert "conll2003" not in plan.of(cells.TASKS)
    asked = plan._replace(tasks=["conll2003"])
    assert {cell.task for cell in cells.table1(asked)} == {"conll2003"}
    assert cells.task_class("conll2003").name == "ner"


def test_results_of_another_protocol_are_refused(paper, plan):
    static, elmo = (plan.trials("ner", column)[0] for column in ("static", "elmo"))
    keep(plan, static, 50.0)
    keep(plan, elmo, 50.0)
    paper.check_cells([static], plan.found, "another")  # it has no biLM
    with pytest.raises(SystemExit, match=r"ner, elmo.* made with model english, .* another"):
        paper.check_cells([static, elmo], plan.found, "another")
    plan.found[static.name]["recipe_sha256"] = "0"
    with pytest.raises(SystemExit, match=r"ner, static.* made with recipe_sha256 0, the protocol"):
        paper.check_results(plan, "english")
    keep(plan, static, 50.0)
    plan.found[static.name]["settings"] = ["train.epochs=8"]
    with pytest.raises(SystemExit, match=r"ner, static.* made with .*epochs=8.*another folder"):
        paper.check_results(plan, "english")
    del plan.found[static.name]["settings"]
    with pytest.raises(SystemExit, match=r"ner, static.* made with settings None"):
        paper.check_results(plan, "english")


def test_runs_of_a_column_have_read_the_same_data_and_networks(paper, plan):
    first, second = plan.trials("ner", "elmo")[:2]
    (other,) = plan.trials("ner", "static")[:1]
    keep(plan, first, 50.0, sources={"train data": "1", "elmo": "2"})
    keep(plan, second, 50.0, sources={"train data": "1", "elmo": "2"})
    keep(plan, other, 50.0, sources={"train data": "1"})
    paper.check_results(plan, "english")
    keep(plan, second, 50.0, sources={"train data": "1", "elmo": "3"})
    with pytest.raises(SystemExit, match=r"ner, elmo.*another elmo than that of ner, elmo"):
        paper.check_results(plan, "english")
    keep(plan, second, 50.0, sources={"train data": "1"})
    with pytest.raises(SystemExit, match=r"another elmo than"):
        paper.check_results(plan, "english")


def test_the_untrained_bilm_is_normalized_and_no_other_column(plan):
    for column in ("static", "elmo", "untrained", "glove"):
        settings = plan.trials("srl", column)[0].all_settings()
        assert ("elmo.layer_norm=true" in settings) == (column == "untrained")


def test_results_and_models_of_another_bilm_are_refused(paper, plan, tmp_path, monkeypatch):
    """The untrained and the fine-tuned biLM in --place are found by name."""
    begun: list = []
    monkeypatch.setattr(paper.grid, "run", lambda *_, **__: begun.append(1))

    def run(table, place, model, found):
        machine = paper.Machine("cpu", tmp_path / place, tmp_path, 1, model)
        paper.run_table(table, tmp_path, plan._replace(found=found), machine, seconds=None)

    run("table1", "a", "english", {})
    with pytest.raises(SystemExit, match=r"--place holds .* english, not other; use another"):
        run("table1", "a", "other", {})
    senses = {"senses": {"model": "english"}, "static": {"model": None}}
    with pytest.raises(SystemExit, match=r"results holds .* english, not other; use another"):
        run("table5", "b", "other", senses)
    run("table5", "a", "english", senses)
    assert len(begun) == 2


def accuracy(counts):
    return 100 * counts[:, 0] / counts[:, 1]


def drawn(rate, *, size=400, seed=0):
    """Give the counts of a test set of which a part is right."""
    right = np.random.default_rng(seed).random(size) < rate
    return np.stack([right, np.ones(size)], axis=1).astype(float)


@pytest.fixture
def bootstrap(paper):
    return lambda before, after, score=accuracy, **more: sys.modules[
        "paper_bootstrap"
    ].paired_bootstrap(before, after, score, **{"resamples": 2000, "alpha": 0.05, **more})


def test_no_difference_is_not_significant_and_a_large_one_is(bootstrap):
    same = bootstrap([drawn(0.6)], [drawn(0.6)])
    assert (same.mean, same.low, same.high, same.p) == (0, 0, 0, 1)
    large = bootstrap([drawn(0.5)], [drawn(0.8, seed=1)])
    assert large.low > 10
    assert large.p == pytest.approx(2 / 2001)
    loss = bootstrap([drawn(0.8, seed=1)], [drawn(0.5)])
    assert loss.mean == pytest.approx(-large.mean)
    assert loss.p == large.p


def test_the_interval_of_independent_columns_is_that_of_a_normal_distribution(bootstrap):
    before, after = drawn(0.6), drawn(0.7, seed=1)
    result = bootstrap([before], [after], resamples=8000)
    pairs = after[:, 0] - before[:, 0]
    half = 1.96 * 100 * pairs.std() / np.sqrt(len(pairs))
    assert result.mean == pytest.approx(100 * pairs.mean())
    assert [result.low, result.high] == pytest.approx(
        [result.mean - half, result.mean + half], abs=0.5
    )


def test_the_same_examples_are_drawn_for_both_columns(bootstrap):
    """A column that is right exactly where the other is, and on ten examples more."""
    before = drawn(0.5)
    after = before.copy()
    after[np.flatnonzero(before[:, 0] == 0)[:10], 0] = 1
    result = bootstrap([before], [after])
    assert result.mean == 2.5
    assert result.low > 0


def test_seeds_that_differ_widen_the_interval(bootstrap):
    seeds = [drawn(rate, seed=1) for rate in (0.5, 0.6, 0.7)]
    one = bootstrap([drawn(0.5)], [seeds[1]] * 3)
    several = bootstrap([drawn(0.5)], seeds)
    assert several.high - several.low > 1.3 * (one.high - one.low)


def test_an_f1_is_that_of_the_summed_counts(bootstrap):
    before = np.array([[1.0, 1, 1], [0, 9, 9]])
    after = np.array([[1.0, 1, 1], [9, 9, 9]])
    result = bootstrap([before], [after], lambda c: 200 * c[:, 0] / (c[:, 1] + c[:, 2]))
    assert result.mean == pytest.approx(100 - 10)  # the mean of two F1s would be 50


def test_columns_with_other_test_examples_are_refused(bootstrap):
    with pytest.raises(ValueError, match=r"the same test examples .* \[300, 400\]"):
        bootstrap([drawn(0.5)], [drawn(0.5, size=300)])


def test_a_page_without_results_says_that_all_is_missing(page, plan):
    shown = page(plan)
    assert row(shown, "Table 1", "SNLI")[:6] == [*["missing"] * 5, ""]
    assert row(shown, "Table 1", "SNLI")[6:] == ["88.0 to 88.7", "+0.7"]
    assert row(shown, "Table 2", "SQuAD")[:4] == ["missing"] * 4
    assert row(shown, "Figure 1", "PropBank", "fastText + ELMo") == ["missing"] * 4
    assert row(shown, "Figure 2", "SST-5") == ["missing", "", "", "", ""]
    assert "CoNLL-2003," not in shown


def test_a_gain_has_its_interval_and_p_only_when_every_seed_is_there(page, plan):
    run_seeds(plan, "snli", "static", [50.0] * 5, items=400)
    run_seeds(plan, "snli", "elmo", [70.0, 72.0, 74.0, 76.0], items=400)
    static, elmo, untrained, glove, gain, p, *_ = row(page(plan), "Table 1", "SNLI")
    assert (static, untrained, glove, gain) == ("50.0 ± 0.0", "missing", "missing", "missing")
    assert elmo == "73.0 ± 2.6 (4 of 5 seeds)"
    keep(plan, plan.runs("snli", "elmo")[4], 78.0, items=400)
    shown = page(plan)
    assert row(shown, "Other gains", "SNLI") == ["missing", ""] * 3
    *_, gain, p, _, _ = row(shown, "Table 1", "SNLI")
    assert re.fullmatch(r"\+24\.0 \(\+1\d\.\d to \+[23]\d\.\d\)", gain)
    assert p == "< 0.0002"


def test_questions_on_one_article_are_drawn_together(plan, paper):
    """All of an article's questions right or wrong: 4 articles are 4 examples, not 40."""
    counts = {"static": [0] * 20 + [1] * 20, "elmo": [0] * 10 + [1] * 30}
    for column, right in counts.items():
        shared = {"counts": [right, [1] * 40]}
        run_seeds(plan, "squad", column, [50.0] * 5, **shared)
    alone = sys.modules["paper_page"].gain(plan, "squad", "static")
    run_seeds(plan, "squad", "elmo", [75.0] * 5, **shared, cluster_sizes=[10, 10, 10, 10])
    together = sys.modules["paper_page"].gain(plan, "squad", "static")
    assert together.mean == pytest.approx(alone.mean) == pytest.approx(25.0)
    assert alone.p < 0.01
    assert together.p == pytest.approx(2 * 0.75**4, abs=0.03)  # no resample has the gain's article


def test_runs_that_did_not_converge_are_counted(page, plan):
    run_seeds(plan, "ner", "static", [50.0, 51.0])
    keep(plan, plan.runs("ner", "static")[0], 50.0, converged=False)
    assert "the dev score had converged: 1 of 2" in page(plan)


def test_the_chosen_trial_is_marked(page, plan):
    tune(plan, "srl", "elmo", best=2)
    cells = row(page(plan), "Trials", "PropBank", "fastText + ELMo")
    assert cells == ["50.0", "50.0", "**60.0**", "50.0"]


def test_the_baseline_is_passed_where_the_score_is_higher_first(page, plan):
    for task, curve in {"snli": [[100, 70.0], [200, 71.0]], "srl": [[100, 60.0]]}.items():
        run_seeds(plan, task, "static", [70.0], curve=[[100, 60.0], [400, 70.0]])
        run_seeds(plan, task, "elmo", [80.0], curve=curve)
    shown = page(plan)
    assert row(shown, "Updates", "SNLI")[2:] == ["200 (1 of 5 seeds)", "50 %"]
    assert row(shown, "Updates", "PropBank")[2:] == ["never, in 1 of 1", ""]


def test_an_estimate_uses_the_runs_that_have_ended_and_shares_the_gpu(paper, plan):
    def needed(plan, at_once):
        rows = sys.modules["paper_cost"].rows(plan, at_once=at_once)
        return {r.table: (r.done, r.left, r.used, r.needed) for r in rows}

    alone = plan._replace(tasks=["ner"], columns=("static", "elmo"))
    assert needed(alone, 2)["trials"] == (0, 8, 0, 8 * 120 / 60 / 2)
    for cell in plan.trials("ner", "static"):
        keep(plan, cell, 50.0, seconds=60.0, at_once=4)
    assert needed(alone, 1)["trials"] == (4, 4, 4 * 60 / 60 / 4, 4.0)
    assert needed(alone, 1)["table1"] == (0, 8, 0, 8.0)
    keep(plan, plan.trials("ner", "elmo")[0], 50.0, seconds=6000.0, device="cpu")
    assert needed(alone, 1)["trials"] == (5, 3, 1.0, 3.0)


def test_figures_are_drawn_of_what_is_there_and_are_the_same_twice(paper, cells, plan, tmp_path):
    pytest.importorskip("matplotlib")
    mix = {"input": {"weights": [0.2, 0.5, 0.3], "gamma": 1.0}}
    for column, layers in {"static": {}, "elmo": mix}.items():
        run_seeds(plan, "snli", column, [80.0] * 5, layers=layers)
        keep(plan, plan.fraction("snli", column, 0.1)[0], 70.0)
    drawn = []
    for number, some in enumerate((plan, plan, cells.Plan({}))):
        paper.draw(some, tmp_path / str(number))
        drawn.append({path.name: path.read_bytes() for path in (tmp_path / str(number)).iterdir()})
    some, again, none = drawn
    assert set(some) == {"paper_table1.svg", "paper_figure1.svg", "paper_figure2.svg"}
    assert some == again
    assert all(some[name] != none[name] for name in some)


FAKE = """
import json, signal, sys, time
from pathlib import Path
word, out = sys.argv[1:3]
if word == "diverge":
    sys.exit("the loss diverged: at update 9")
if word == "fail":
    sys.exit("no such file")
if word == "garble":
    sys.exit(print("{"))
if word == "wait" and not Path(out).exists():
    def save(*_):
        Path(out).write_text("saved")
        sys.exit(143)
    signal.signal(signal.SIGTERM, save)
    Path("started").touch()
    time.sleep(60)
print(json.dumps({"word": word}))
"""


@pytest.fixture
def run_jobs(paper, tmp_path, monkeypatch):
    """Return a function that runs fake commands; each has a word that says what it does."""
    (tmp_path / "elmore").mkdir()
    (tmp_path / "elmore" / "__init__.py").touch()
    (tmp_path / "elmore" / "__main__.py").write_text(FAKE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    grid = sys.modules["grid"]

    def run(*words, **options):
        jobs = [
            grid.Job(word, [word, f"{word}.txt"], lambda printed: printed, {}, Path(f"{word}.s"))
            for word in words
        ]
        results = tmp_path / "results"
        return grid.run(lambda found: jobs, results, **({"at_once": 2} | options))

    return run


def test_every_result_is_a_file_and_is_not_computed_again(run_jobs, tmp_path, capfd):
    assert set(run_jobs("one", "fail", "garble", "two", at_once=1)) == {"one", "two"}
    printed = capfd.readouterr().err
    assert "fail: exit 1: no such file" in printed
    assert "garble: its result cannot be read (" in printed
    assert len(list((tmp_path / "results").glob("*.json"))) == 2
    run_jobs("one", "two", "three")
    assert re.findall(r"^(\w+): .* s$", capfd.readouterr().err, re.MULTILINE) == ["three"]


def test_a_diverged_training_is_a_result(run_jobs):
    assert run_jobs("diverge")["diverge"]["failed"] == "the loss diverged: at update 9"


def test_a_stopped_command_saves_itself_and_goes_on(run_jobs, tmp_path, monkeypatch):
    reads = itertools.count()
    clock = SimpleNamespace(  # the time is over when the command has begun; each part takes 5 s
        monotonic=lambda: 1e6 * (tmp_path / "started").exists(),
        perf_counter=lambda: 5.0 * next(reads),
    )
    monkeypatch.setattr(sys.modules["grid"], "time", clock)
    assert run_jobs("wait", seconds=0.2) == {}
    assert (tmp_path / "wait.txt").read_text() == "saved"
    assert (tmp_path / "wait.s").read_text() == "5.0"
    result = run_jobs("wait")["wait"]
    assert result["word"] == "wait"
    assert result["seconds"] == 10  # of both


def test_a_fine_tuned_model_is_made_where_it_is_not(paper, plan, monkeypatch, tmp_path):
    """Its result may come from another machine, without the model."""
    tune(plan, "ner", "elmo")
    asked = plan._replace(tasks=["ner"])
    machine = paper.Machine("cpu", tmp_path, tmp_path, 1)
    monkeypatch.setattr(paper.grid, "run", lambda ready, *_, **__: jobs.extend(ready(plan.found)))
    monkeypatch.setattr(paper, "finetuning", lambda task, _: f"fine-tuning, {task}")
    monkeypatch.setattr(paper, "training", lambda cell, _: cell)
    jobs: list = []
    plan.found["fine-tuning, ner"] = {"before": 9.0, "after": 8.0}
    paper.run_table("finetuned", tmp_path, asked, machine, seconds=None)
    assert jobs == ["fine-tuning, ner"]
    assert "fine-tuning, ner" not in plan.found
    (tmp_path / "finetuned" / "ner").mkdir(parents=True)
    (tmp_path / "finetuned" / "ner" / "done").touch()
    jobs.clear()
    paper.run_table("finetuned", tmp_path, asked, machine, seconds=None)
    assert jobs == plan.runs("ner", "finetuned")
    assert len(jobs) == 5


def test_a_bilm_is_not_fine_tuned_anew_beside_results_with_the_former_one(paper, plan):
    run_seeds(plan, "ner", "elmo", [50.0] * 5)
    keep(plan, plan.runs("ner", "finetuned")[0], 50.0)
    paper.check_finetuned(["snli"], plan.found)
    with pytest.raises(SystemExit, match=r"fine-tuned for ner, which is not in --place: copy"):
        paper.check_finetuned(["ner"], plan.found)


def test_a_finished_training_is_read_whole(paper, tmp_path):
    lines = [{"step": n, "valid_f1": score} for n, score in enumerate([1.0, 3.0, 2.0, 2.5])]
    text = "".join(json.dumps(line) + "\n" for line in [*lines, {"step": 9, "loss": 1.0}])
    (tmp_path / "metrics.jsonl").write_text(text)
    (tmp_path / "test_counts.json").write_text(json.dumps({"counts": [[1.0, 2.5], [0.0, 3.0]]}))
    printed = {"dev": {"f1": 3.0}, "test": {"f1": 2.0}}
    for patience, converged in ((2, True), (3, False)):
        recipe = {
            "train": {"patience": patience},
            "embedder": {"specification": "glove:/a/b", "glove": "12ab"},
            "data": {"sha256": {"train": "34", "dev": "56"}},
        }
        (tmp_path / "recipe.json").write_text(json.dumps(recipe))
        result = paper.read_result(printed, tmp_path, "f1")
        assert result["converged"] is converged
    lines = [{"step": n, "valid_f1": 0.0} for n in range(4)]  # it never learned, and ran to its end
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert paper.read_result(printed, tmp_path, "f1")["converged"] is False
    assert result["sources"] == {"glove": "12ab", "train data": "34", "dev data": "56"}
    assert result["curve"] == [[0, 1.0], [1, 3.0], [2, 2.0], [3, 2.5]]
    assert result["counts"] == [[1, 0], [2.5, 3]]
    assert (result["dev"], result["test"]) == (3.0, 2.0)


def test_no_row_of_the_readers_page_differs_from_the_results():
    text = (ROOT / "docs/results.md").read_text("utf-8")
    section = text.split("## The paper's tables and figures", 1)[1].split("\n## ", 1)[0]
    tables, layers, rest = re.split(r"^### (?=Tables 5 and 6|Cost)", section, flags=re.MULTILINE)
    assert layers.startswith("Tables 5")  # from other results
    rows = re.findall(r"^\|.+\|$", tables + rest, flags=re.MULTILINE)
    kept = set(RESULTS.read_text("utf-8").splitlines())
    assert len(rows) > 40
    assert [line for line in rows if line not in kept] == []
