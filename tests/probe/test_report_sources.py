"""What a report is made of when it is not as usual: other versions, cut files, odd places."""

import json
import re
import shutil

import pytest

from elmore.errors import DataError
from elmore.probe import plots, report
from elmore.probe.occurrence_map import MappedOccurrence, OccurrenceMap
from elmore.probe.reporting import inputs, load_results, load_runs
from tests.support.cli_runner import run_elmore

UPDATES = "".join(json.dumps({"step": n, "loss": 9.0 - n}) + "\n" for n in (1, 2))
MEASURED = {
    "forward": 41.0,
    "backward": 43.0,
    "perplexity": 42.0,
    "bits_per_character": 1.5,
    "tokens": 1000,
    "oov": 0.025,
}


def run_folder(folder, *, recipe=None, metrics=UPDATES):
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text(metrics)
    if recipe is not None:
        (folder / "recipe.json").write_text(json.dumps(recipe))
    return folder


def test_nothing_has_no_names():
    assert inputs.short_names([]) == []


def test_the_softmax_that_fine_tuning_learned_first_is_a_run_of_its_own(tmp_path):
    run_folder(tmp_path / "run" / "softmax")
    (tmp_path / "run" / "metrics.jsonl").write_text(UPDATES)
    assert [run.name for run in load_runs.load_run_folder(tmp_path / "run", "run")] == [
        "run",
        "run/softmax",
    ]


def test_a_task_of_another_version_is_judged_by_its_first_score(tmp_path):
    scored = json.dumps({"step": 3, "loss": 1.0, "valid_bleu": 20.0, "valid_other": 1.0})
    path = run_folder(tmp_path / "run", recipe={"task": "translate"}, metrics=UPDATES + scored)
    (run,) = load_runs.load_run_folder(path, "run")
    assert run.metric == "bleu"
    assert run.best() == (3, {"bleu": 20.0, "other": 1.0})
    assert run.mixes == {}  # it was stopped before it had a best model
    other = run_folder(tmp_path / "other", recipe={"task": "translate"})
    assert load_runs.load_run_folder(other, "other")[0].metric == "score"


def test_weights_that_cannot_be_read_are_named(tmp_path):
    path = run_folder(tmp_path / "run", recipe={"task": "ner"})
    (path / "best").mkdir()
    (path / "best" / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(DataError, match=r"model\.safetensors: not a readable safetensors file"):
        load_runs.load_run_folder(path, "run")


def test_several_runs_of_language_models_are_refused(reported, tmp_path):
    for seed in (0, 1):
        shutil.copytree(reported.language, tmp_path / "runs" / f"seed-{seed}")
    with pytest.raises(DataError, match="runs: holds several runs, but they are not of a task"):
        load_runs.load_run_folder(tmp_path / "runs", "runs")


@pytest.mark.parametrize(
    "summary",
    [
        {},
        {"metric": "f1", "summary": []},
        {"metric": "f1", "summary": [1]},
        {"metric": "f1", "summary": [{"scores": 3}]},
        {"metric": "f1", "summary": [{"scores": {"dev": [1]}}]},
        {"metric": "f1", "summary": [{"scores": {"dev": {"f1": 3}}}]},
        {"metric": "f1", "summary": [{"scores": {"dev": {"f1": {"mean": "high"}}}}]},
        {"summary": [{"scores": {"dev": {"f1": {"mean": 3.0}}}}]},
    ],
)
def test_a_file_that_is_not_a_summary_of_runs_is_refused(summary):
    with pytest.raises(DataError, match="here: expected means and deviations of runs"):
        load_runs.check_summary(summary, "here")


def test_a_printed_summary_is_read_as_it_is(reported, tmp_path):
    path = tmp_path / "scores.json"
    shutil.copy(reported.ner / "summary.json", path)
    assert load_results.load_result(path) == json.loads(path.read_text())
    assert list(inputs.load_inputs([path]).summaries) == ["scores"]


def test_senses_without_an_interval_are_refused(tmp_path):
    path = tmp_path / "wsd.json"
    table = {"2": {"f1": 0.7}}
    path.write_text(
        json.dumps({"chosen": "2", "held_out": table, "tests": {}, "num_uses": 1, "num_senses": 1})
    )
    with pytest.raises(
        DataError, match=r"wsd.json: '2': expected scores with f1, f1_low and f1_high"
    ):
        load_results.load_result(path)


def test_a_file_that_is_not_text_is_named(tmp_path):
    (tmp_path / "odd.json").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(DataError, match=r"odd.json: cannot be read \(.*utf-8"):
        load_results.load_result(tmp_path / "odd.json")


def test_perplexities_that_were_measured_are_shown(tmp_path):
    (tmp_path / "valid.json").write_text(json.dumps(MEASURED))
    made = report.build([tmp_path / "valid.json"])
    assert "perplexity 42.00" in made.html.partition("<main>")[0]
    assert "Measured perplexities" in made.html
    for value in (41.0, 43.0, 42.0, 1.5, 0.025):
        assert f'<data value="{value!r}">' in made.html
    assert made.figures == {}


def test_figures_of_one_name_are_numbered(reported, tmp_path):
    paths = [tmp_path / name for name in ("a b.json", "a+b.json")]
    for path in paths:
        shutil.copy(reported.files["pos"], path)
    assert set(report.build(paths).figures) == {"pos_a_b", "pos_a_b-2"}


def test_texts_beyond_what_a_page_holds_are_counted(tmp_path):
    row = {"tokens": ["a"], "forward": [-1.0], "backward": [-1.0], "known": [True]}
    lines = [json.dumps(row | {"line": number}) for number in range(500)]
    (tmp_path / "score.json").write_text("\n".join(lines))
    html = report.build([tmp_path / "score.json"]).html
    (shown,) = re.findall(r"The first (\d+) of 500 texts\.", html)
    assert html.count('<p class="words">') == int(shown) < 500


def test_long_cells_are_let_be_wide(tmp_path):
    name = "x" * 41
    (tmp_path / f"{name}.json").write_text(json.dumps(MEASURED))
    assert f'<td class="text">{name}</td>' in report.build([tmp_path / f"{name}.json"]).html


@pytest.mark.parametrize(
    ("out", "plots_at", "message"),
    [
        ("in.html", None, "in.html is also an input; pass another name"),
        ("page.html", "in.html", "in.html: expected a folder for the figures, found a file"),
    ],
)
def test_an_existing_path_is_refused_first(tmp_path, out, plots_at, message):
    (tmp_path / "in.html").write_text(json.dumps(MEASURED))
    more = ["--plots", str(tmp_path / plots_at)] if plots_at else []
    done = run_elmore("report", str(tmp_path / "in.html"), "-o", str(tmp_path / out), *more)
    assert (done.code, done.out) == (1, "")
    assert message in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["in.html"]


def on_map(num_senses, variance):
    placed = [
        MappedOccurrence(("the", "word"), 1, 2, f"word%1:0{n}:00::", 0, float(n), float(n))
        for n in range(num_senses)
    ]
    return OccurrenceMap(
        "word", "2", "tsne", variance, num_senses, 1, None, None, None, tuple(placed)
    )


def test_a_map_without_directions_says_that_its_axes_have_no_unit():
    svg = plots.occurrence_map(on_map(3, None)).svg()
    assert "t-SNE, first dimension" in svg
    assert "of the variance" not in svg


@pytest.mark.parametrize(("num_senses", "others"), [(8, False), (9, True)])
def test_a_single_remaining_sense_has_its_own_colour(num_senses, others):
    assert ("other senses" in plots.occurrence_map(on_map(num_senses, (0.5, 0.2))).svg()) is others


def test_a_curve_leaves_out_the_part_that_has_no_score():
    parts = [
        {"examples": 10, "scores": {"dev": {}}},
        {"examples": 100, "scores": {"dev": {"f1": {"mean": 50.0, "deviation": None}}}},
    ]
    several = load_runs.Sweep("runs", "ner", [], {"metric": "f1", "summary": parts})
    svg = plots.sample_efficiency("F1", [several], "dev", "f1").svg()
    assert "runs, 100 examples: 50.00" in svg
    assert "10 examples" not in svg
