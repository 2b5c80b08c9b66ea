"""A report says what runs and results say, and refuses by name what is neither."""

import json
import math
import re
import shutil
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from safetensors.numpy import load_file

from elmore.errors import ConfigError, DataError
from elmore.probe import plots, report
from elmore.probe.drawing import axes
from elmore.probe.reporting import inputs, load_results, load_runs
from tests.support.cli_runner import run_elmore


class Numbers(HTMLParser):
    """The `value` of every <data>, and every link that leads out of the page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.values: list[float] = []
        self.outside: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        if tag == "data":
            self.values.append(float(named["value"]))
        for key in ("src", "href", "xlink:href"):
            if named.get(key) and not named[key].startswith(("#", "data:")):
                self.outside.append(named[key])


def lines(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_every_score_of_every_evaluation_is_on_the_page_to_the_last_digit(reported):
    page = Numbers(reported.report.html)
    runs = [reported.language, *reported.ner.glob("fraction-*/seed-*")]
    assert len(runs) == 5
    for run in runs:
        scored = [
            record for record in lines(run) if "valid_tokens" in record or "valid_f1" in record
        ]
        assert len(scored) == (3 if run == reported.language else 2)
        for record in scored:
            for key, value in record.items():
                if key.startswith("valid_") and key != "valid_tokens":
                    assert value in page.values, (run, key)


def test_the_page_holds_nothing_that_lies_elsewhere(reported):
    html = reported.report.html
    assert Numbers(html).outside == []
    assert "<script" not in html
    assert "@import" not in html
    assert re.findall(r"url\(", html) == []
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", html) == []


def test_untrusted_text_is_never_html(reported):
    assert "&lt;b&gt;&amp;amp;" in reported.report.html
    assert "<mark>&lt;play&gt;</mark>" in reported.report.html
    assert "<b>" not in reported.report.html


def test_the_same_runs_give_the_same_page(reported):
    assert report.build(reported.sources) == reported.report


def series(figure) -> dict[str, int]:
    """How many marks each series of a figure has."""
    result = {}
    for node in ElementTree.fromstring(figure.svg()).iter():
        if "dot" in (node.get("class") or "") and node.get("data-series"):
            result[node.get("data-series")] = result.get(node.get("data-series"), 0) + 1
    return result


def test_curves_have_a_point_for_each_evaluation(reported):
    figures = reported.report.figures
    assert series(figures["perplexity"]) == {"language": 3}
    runs = [f"ner/fraction-{part}/seed-{seed}" for part in ("0.5", "1") for seed in (0, 1)]
    assert series(figures["ner_score"]) == dict.fromkeys(runs, 2)
    assert series(figures["ner_sample_efficiency"]) == {"ner": 2}


def test_layer_weights_are_the_softmax_of_what_was_learned(reported):
    run = reported.ner / "fraction-1" / "seed-0"
    weights = load_file(run / "best" / "model.safetensors")
    (one,) = load_runs.load_run_folder(run, "run")
    assert set(one.mixes) == {"input", "output"}
    for index, shares in one.mixes.items():
        learned = weights[f"embedding.mixes.{index}.mix.weights"].astype(np.float64)
        expected = [math.exp(w) / sum(map(math.exp, learned)) for w in learned]
        assert shares == pytest.approx(expected)
        assert all(share in Numbers(reported.report.html).values for share in shares)
    boxes = [
        node
        for node in ElementTree.fromstring(reported.report.figures["layer_weights"].svg()).iter()
        if node.get("data-series")
    ]
    assert len(boxes) == 2 * 3  # input and output, three layers


def test_every_kind_of_result_has_its_figure(reported):
    expected = {
        "perplexity", "training_loss", "ner_score", "ner_loss", "layer_weights",
        "ner_sample_efficiency", "pos_pos", "wsd_wsd", "context_context", "uses_uses",
    }  # fmt: skip
    assert expected <= set(reported.report.figures)
    assert {name for name in reported.report.figures if name.startswith("surprise")} == {
        f"surprise_score_{number}" for number in range(4)
    }
    html = reported.report.html
    for title in (
        "Nearest occurrences",
        "Surprisal",
        "Probes",
        "Sample efficiency",
        "Senses on a map",
    ):
        assert f"<h2>{title}</h2>" in html
    assert "120 annotated instances of 34 senses" in html
    assert 0.875 in Numbers(html).values


def test_the_best_of_each_run_stands_on_top(reported):
    best = min(line["valid_perplexity"] for line in lines(reported.language) if "valid_oov" in line)
    top = reported.report.html.partition("<main>")[0]
    assert f"perplexity {best:.2f} at update" in top
    scores = json.loads((reported.ner / "summary.json").read_text())["summary"][-1]["scores"]
    assert f"f1 {scores['test']['f1']['mean']:.2f} ± " in top


def test_surprise_is_minus_the_binary_logarithm(reported):
    first = json.loads(reported.files["score"].read_text().splitlines()[0])
    values = Numbers(reported.report.html).values
    for forward in first["forward"]:
        assert any(value == pytest.approx(-forward / math.log(2)) for value in values)


def test_runs_that_were_stopped_before_their_summary_are_put_together(reported, tmp_path):
    shutil.copytree(reported.ner, tmp_path / "ner")
    (tmp_path / "ner" / "summary.json").unlink()
    result = inputs.load_inputs([tmp_path / "ner"]).sweeps["ner"]
    whole = json.loads((reported.ner / "summary.json").read_text())
    for part, expected in zip(result.summary["summary"], whole["summary"], strict=True):
        assert part["examples"] == expected["examples"]
        mean = expected["scores"]["dev"]["f1"]["mean"]
        assert part["scores"]["dev"]["f1"]["mean"] == pytest.approx(mean)


def test_a_line_that_a_kill_cut_short_is_left_out(reported, tmp_path):
    shutil.copytree(reported.language, tmp_path / "run")
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 25, "lo')
    (run,) = load_runs.load_run_folder(tmp_path / "run", "run")
    assert run.steps == list(range(1, 25))


def test_a_run_without_held_out_text_shows_its_loss_alone(reported, tmp_path):
    (tmp_path / "run").mkdir()
    kept = [{"step": one["step"], "loss": one["loss"]} for one in lines(reported.language)]
    (tmp_path / "run" / "metrics.jsonl").write_text("\n".join(map(json.dumps, kept)))
    made = report.build([tmp_path / "run"])
    assert list(made.figures) == ["training_loss"]
    assert "no score" in made.html


def test_long_loss_curves_are_means_of_intervals():
    run = load_runs.TrainingRun("r", None, "perplexity", list(range(1, 1001)), [1.0, 3.0] * 500, [])
    figure = plots.training_loss("loss", [run])
    (path,) = [
        node for node in ElementTree.fromstring(figure.svg()).iter() if node.get("data-series")
    ]
    heights = {point.split()[1] for point in path.get("d").lstrip("M").split("L")}
    assert len(path.get("d").split("L")) == math.ceil(1000 / math.ceil(1000 / 160))
    assert len(heights) <= 3


def bad_run(tmp_path, **files):
    path = tmp_path / "run"
    path.mkdir()
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    return path


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "run: holds no metrics.jsonl; expected a folder that 'elmore pretrain'"),
        ({"metrics__jsonl": ""}, "metrics.jsonl: is empty; the run has not finished a step yet"),
        ({"metrics__jsonl": "{}\n{}\n"}, "metrics.jsonl: line 1: expected a JSON object with"),
        ({"metrics__jsonl": "[1]\n"}, "metrics.jsonl: line 1: expected"),
        (
            {"metrics__jsonl": '{"step": 1, "loss": 2}\n', "recipe__json": "{"},
            "recipe.json: not a readable JSON file",
        ),
    ],
)
def test_a_folder_that_is_no_run_is_refused_by_name(tmp_path, files, message):
    with pytest.raises((DataError, ConfigError), match=re.escape(message)):
        report.build([bad_run(tmp_path, **files)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found neither JSON nor JSON Lines"),
        ("[]", "odd.json: not recognised"),
        ("not json", "found neither JSON nor JSON Lines"),
        ('{"some": "thing"}', "odd.json: not recognised; expected the --json output of one of"),
        ('[{"layer": "0"}]', "not recognised"),
        ('[{"layer": "0", "test": "high", "dev": 1}]', "test: expected float, found 'high'"),
        ('{"query": "a [b]", "neighbors": [{"word": "b"}]}', "missing key 'tokens'"),
        (
            '{"line": 0, "tokens": ["a"], "forward": [], "backward": [-1], "known": [true]}',
            "expected as many forward, backward and known values as tokens",
        ),
    ],
)
def test_a_file_without_results_is_refused_by_name(tmp_path, text, message):
    path = tmp_path / "odd.json"
    path.write_text(text)
    with pytest.raises(DataError, match=re.escape(message)):
        load_results.load_result(path)
    with pytest.raises(DataError, match=re.escape(str(path))):
        load_results.load_result(path)


def test_neighbours_may_come_a_line_each_and_with_more_keys(tmp_path):
    near = {"word": "b", "tokens": ["b"], "position": 0, "similarity": 1.0, "line": 3, "layer": 2}
    path = tmp_path / "near.json"
    row = json.dumps({"query": "a [b]", "neighbors": [near], "model": "m"})
    path.write_text(f"{row}\n{row}\n")
    result = load_results.load_result(path)
    assert [one.query for one in result] == ["a [b]"] * 2
    assert result[0].neighbors[0].line == 3


def test_results_of_one_name_are_told_apart_and_one_named_twice_is_refused(tmp_path):
    paths = [tmp_path / "a" / "run", tmp_path / "b" / "run"]
    assert inputs.short_names(paths) == ["a/run", "b/run"]
    assert inputs.short_names([tmp_path / "x.json", tmp_path / "y"]) == ["x", "y"]
    assert inputs.short_names([tmp_path / "x.json", tmp_path / "x"]) == ["x.json", "x"]
    with pytest.raises(DataError, match="run is named twice; name it once"):
        inputs.short_names([paths[0], paths[0]])
    with pytest.raises(DataError, match="nowhere: no such file or folder"):
        inputs.load_inputs([tmp_path / "nowhere"])


def test_the_command_writes_the_page_and_its_figures(reported, tmp_path):
    out, folder = tmp_path / "page.html", tmp_path / "plots"
    folder.mkdir()
    (folder / "mine.txt").write_text("dear to somebody")
    out.write_text("an earlier page")
    sources = [str(reported.language), str(reported.files["pos"])]
    done = run_elmore("report", *sources, "-o", str(out), "--plots", str(folder))
    assert (done.code, done.out) == (0, f"{out}\n"), done.err
    names = {"perplexity", "training_loss", "pos_pos"}
    expected = {f"{name}{ending}" for name in names for ending in (".svg", ".png")}
    assert {path.name for path in folder.iterdir()} == expected | {"mine.txt"}
    for name in names:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert ElementTree.parse(folder / f"{name}.svg").getroot().get("width") == "440"
    assert "<h2>Probes</h2>" in out.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "plots"]


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("page.txt", "expected a file name that ends in .html"),
        ("nowhere/page.html", "in an existing folder"),
        (".", "expected a file name"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused_first(tmp_path, out, message):
    done = run_elmore("report", str(tmp_path / "no run"), "-o", str(tmp_path / out))
    assert (done.code, done.out) == (1, "")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_ticks_are_round_and_lie_on_the_axis():
    assert axes.Axis(0, 10, "").ticks() == [0, 2, 4, 6, 8, 10]
    assert axes.Axis(52, 74.6, "").ticks() == [55, 60, 65, 70]
    assert axes.Axis(8, 1300, "", log=True).ticks() == [10, 20, 50, 100, 200, 500, 1000]
    assert axes.Axis(-0.15, 2.15, "", whole=True).ticks() == [0, 1, 2]
    assert axes.axis_for([5.0], "").ticks()
    assert axes.axis_for([], "").ticks()
    assert [axes.format_tick(value) for value in (0.25, 5000, 20000, 1.5e6)] == [
        "0.25",
        "5000",
        "20k",
        "1.5M",
    ]
