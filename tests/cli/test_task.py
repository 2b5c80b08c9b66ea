import io
import json
import re
import subprocess
import sys

import pytest

from elmore.embed.loading import load as load_embedder
from elmore.tasks.embedding import spec, word_vectors
from tests.support import toy_tasks
from tests.support.cli_runner import run_elmore


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ELMORE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def data(tmp_path):
    return str(toy_tasks.write("ner", tmp_path / "data.txt"))


def train(tmp_path, data, *more, name="ner", epochs=2, embedder="none"):
    chosen = [*toy_tasks.small(name), f"train.epochs={epochs}"]
    settings = [part for value in chosen for part in ("--set", value)]
    out = str(tmp_path / "run")
    files = ["--train", data, "--dev", data, "-o", out]
    chosen = ["--embedder", embedder] if embedder else []
    files += ["--device", "cpu", *chosen, *settings]
    return run_elmore("task", "train", name, *files, *more)


def trained(tmp_path, name):
    """Train a task a little, and give its run."""
    done = train(tmp_path, str(toy_tasks.write(name, tmp_path / "data.txt")), name=name)
    assert done.code == 0, done.err
    return str(tmp_path / "run")


def piped(monkeypatch, text):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_train_evaluate_and_predict(tmp_path, data):
    bilm = toy_tasks.bilm(tmp_path / "bilm")
    done = train(tmp_path, data, "--embedder", f"elmo:{bilm}", "--test", data, epochs=12)
    assert done.code == 0, done.err
    dev, test, layers = done.out.splitlines()
    assert dev.startswith("dev  f1 ")
    assert test.removeprefix("test") == dev.removeprefix("dev")
    weights = [
        float(weight)
        for weight in layers.removeprefix("layer weights at input  ").split("  ")[0].split()
    ]
    assert len(weights) == 3
    assert sum(weights) == pytest.approx(1, abs=0.002)
    assert "perplexity" not in done.err

    run = str(tmp_path / "run")
    page = tmp_path / "report.html"
    assert run_elmore("report", run, "-o", str(page)).code == 0
    shown = page.read_text(encoding="utf-8")
    assert "run: scores on the test examples" in shown
    assert "run: F1 of each label" in shown
    assert "run: confused labels" in shown
    test_scores = json.loads((tmp_path / "run" / "test.json").read_text())["scores"]
    assert f'<data value="{test_scores["f1"]}"' in shown
    scores = json.loads(run_elmore("task", "evaluate", run, data, "--json").out)
    assert f"dev  f1 {scores['f1']:.2f}" in dev
    assert f"f1 {scores['f1']:.2f}" in run_elmore("task", "evaluate", run, data).out
    shown = run_elmore("task", "predict", run, "Ann Lee saw Rome.", "Bo left.").out
    assert len(shown.splitlines()) == 2
    assert "Ann" in shown
    line = run_elmore("task", "predict", run, "a b. c", "--tokenized", "--json").out
    assert json.loads(line)["tokens"] == ["a", "b.", "c"]


@pytest.mark.parametrize("more", [(), ("--num-seeds", "2")])
def test_training_data_is_read_and_hashed_once(tmp_path, data, monkeypatch, more):
    read, hashed = (
        count(monkeypatch, word_vectors, "read_word_vectors"),
        count(monkeypatch, spec, "hash_vectors"),
    )
    loaded = count(monkeypatch, spec, "load_embedder")
    known = count(monkeypatch, spec, "model_digest")
    vectors = toy_tasks.vectors(tmp_path / "vectors.txt")
    named = f"glove:{vectors}+elmo:{toy_tasks.bilm(tmp_path / 'bilm')}"
    done = train(tmp_path, data, "--embedder", named, "--test", data, *more, epochs=1)
    assert done.code == 0, done.err
    assert [len(calls) for calls in (read, hashed, loaded, known)] == [1, 1, 1, 1]
    stored = {path.stat().st_ino for path in tmp_path.rglob("best/vectors.safetensors")}
    assert len(stored) == 1


def count(monkeypatch, module, name):
    """Keep the arguments of each call of a function."""
    calls, function = [], getattr(module, name)

    def counted(*arguments, **options):
        calls.append(arguments)
        return function(*arguments, **options)

    monkeypatch.setattr(module, name, counted)
    return calls


def test_a_run_is_scored_with_a_biLM_that_lies_elsewhere(tmp_path, data):
    bilm = toy_tasks.bilm(tmp_path / "bilm")
    assert (
        train(tmp_path, data, "--embedder", f"elmo:{bilm}", "--num-seeds", "2", epochs=1).code == 0
    )
    run, place = tmp_path / "run", bilm.rename(tmp_path / "elsewhere")
    for command in (("evaluate", str(run), data), ("predict", str(run / "seed-0"), "Bo left.")):
        lost = run_elmore("task", *command)
        assert lost.code == 1
        assert lost.err.endswith("name its new place with --embedder elmo:MODEL\n")
        assert lost.err.count("\n") == 1
        result = run_elmore("task", *command, "--embedder", f"elmo:{place}")
        assert result.code == 0, result.err


def test_training_prints_its_scores_and_layer_weights_as_json(tmp_path, data):
    bilm = toy_tasks.bilm(tmp_path / "bilm")
    done = train(tmp_path, data, "--embedder", f"elmo:{bilm}", "--test", data, "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert list(result) == ["dev", "test", "layer_weights"]
    assert result["dev"] == result["test"]
    assert sum(result["layer_weights"]["input"]["weights"]) == pytest.approx(1)
    counts = tmp_path / "counts.json"
    run_elmore("task", "evaluate", str(tmp_path / "run"), data, "--counts", str(counts))
    assert counts.read_text() == (tmp_path / "run" / "test_counts.json").read_text()


def test_several_seeds_give_means_and_deviations(tmp_path, data):
    test = str(toy_tasks.write("ner", tmp_path / "test.txt", 5))
    done = train(tmp_path, data, "--num-seeds", "2", "--test", test)
    assert done.code == 0, done.err
    dev, tested = done.out.splitlines()
    assert re.match(r"dev  f1 \d+\.\d\d ± \d+\.\d\d  precision ", dev)
    run = tmp_path / "run"
    summary = json.loads((run / "summary.json").read_text())
    assert len(json.loads((run / "seed-1" / "test_counts.json").read_text())["counts"]) == 5
    again = train(tmp_path, data, "--num-seeds", "2", "--test", test, "--resume", "--json")
    assert json.loads(again.out) == summary
    assert again.err.count("is already finished: there is nothing to do") == 1
    scored = json.loads(run_elmore("task", "evaluate", str(run), test, "--json").out)
    assert scored["summary"][0]["scores"]["data"] == summary["summary"][0]["scores"]["test"]
    assert run_elmore("task", "evaluate", str(run), test).out == f"data{tested[4:]}\n"
    for command in (
        ("predict", str(run), "Ann left."),
        ("evaluate", str(run), test, "--predictions", str(tmp_path / "x")),
    ):
        asked = run_elmore("task", *command)
        assert asked.code == 1
        assert f"holds 2 trained runs; name one of them, as {run / 'seed-0'}" in asked.err
    assert run_elmore("task", "predict", str(run / "seed-1"), "Ann left.").code == 0


def test_fractions_make_a_table(tmp_path, data):
    done = train(tmp_path, data, "--train-fractions", "0.01,0.5", "--num-seeds", "2")
    assert done.code == 0, done.err
    head, first, second = (line.split("\t") for line in done.out.splitlines())
    assert head == ["fraction", "examples", "runs", "dev f1"]
    assert first[:3] == ["0.01", "1", "2"]
    assert second[:3] == ["0.5", "10", "2"]
    assert "±" in second[3]
    assert (tmp_path / "run" / "fraction-0.01" / "seed-1" / "best").is_dir()


def test_check_reports_what_is_suspicious_and_writes_nothing(tmp_path, data):
    before = sorted(tmp_path.rglob("*"))
    files = ("--train", data, "--dev", data, "--check")
    done = run_elmore("task", "train", "ner", *files)
    assert done.code == 0, done.err
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert rows[0] == ["split", "what", "found", ""]
    assert ["train", "examples", "20", ""] in rows
    (leak,) = [row for row in rows if row[1] == "texts that are in train"]
    assert leak[3].startswith("! the model has seen these in training")
    result = json.loads(run_elmore("task", "train", "ner", *files, "--json").out)
    assert {row["what"]: row["suspicious"] for row in result}["texts that are in train"] is True
    assert sorted(tmp_path.rglob("*")) == before
    done = run_elmore("task", "train", "ner", "--train", data, "--dev", "none", "--check")
    assert (done.code, done.out) == (1, "")
    assert "none: cannot be read" in done.err


def test_the_cost_of_layers_is_logged(tmp_path, data):
    done = train(tmp_path, data, "--embedder", f"elmo:{toy_tasks.bilm(tmp_path / 'bilm')}")
    assert "layers of 40 sentences: computed in part" in done.err
    assert "an epoch took" in done.err


def test_predictions_are_written(tmp_path, data):
    assert train(tmp_path, data).code == 0
    out = tmp_path / "predicted.txt"
    done = run_elmore("task", "evaluate", str(tmp_path / "run"), data, "--predictions", str(out))
    assert done.code == 0, done.err
    assert out.read_text().splitlines()[0].split(" ")[:2] == ["Ann", "B-person"]


def test_a_file_where_a_text_belongs_is_pointed_out(tmp_path, data):
    assert train(tmp_path, data).code == 0
    text = tmp_path / "text.txt"
    text.write_text("Ann left .")
    result = run_elmore("task", "predict", str(tmp_path / "run"), str(text))
    assert result.code == 1
    assert f"{text} is a file, expected a text" in result.err


def test_lines_of_stdin_are_predicted(tmp_path, data, monkeypatch):
    assert train(tmp_path, data).code == 0
    piped(monkeypatch, "Bo left .\n\nAnn saw Rome .\n")
    shown = run_elmore("task", "predict", str(tmp_path / "run")).out
    assert len(shown.split("\n")) == 4


def test_lines_of_a_document_belong_together(tmp_path, monkeypatch):
    run = trained(tmp_path, "coref")
    piped(monkeypatch, "Ann Lee saw\nRome. She left.\nBo left.\n \n\nCy Young saw it.\n\n")
    told = run_elmore("task", "predict", run, "Ann left.\n\nShe saw it.", "-", "--json")
    assert told.code == 0, told.err
    documents = [json.loads(line)["sentences"] for line in told.out.splitlines()]
    typed, first, second = ([" ".join(tokens) for tokens in document] for document in documents)
    assert typed == ["Ann left .", "She saw it ."]
    assert first == ["Ann Lee saw Rome .", "She left .", "Bo left ."]
    assert second == ["Cy Young saw it ."]


def test_a_line_that_is_not_an_example_is_named(tmp_path, monkeypatch):
    run = trained(tmp_path, "squad")
    piped(monkeypatch, "Who left?\tAnn left Rome.\nShe saw New York, too.\n")
    said = run_elmore("task", "predict", run)
    assert (said.code, said.out) == (1, "")
    assert said.err == (
        "elmore: stdin, line 2: expected a question, a tab and the passage that answers it, found "
        "'She saw New York, too.'; where lines are piped, all three are on one\n"
    )
    typed = "Who left?\tAnn left Rome.\nShe saw New York, too."
    told = run_elmore("task", "predict", run, typed, "--json")
    assert told.code == 0, told.err
    result = json.loads(told.out)
    assert result["answer"] == typed.partition("\t")[2][result["start"] : result["end"]]
    said = run_elmore("task", "predict", run, typed, "Who left?")
    assert said.err.startswith("elmore: text 2: expected a question, a tab and the passage")


@pytest.mark.parametrize("name", ["ner", "pos", "sst", "srl", "coref"])
def test_json_says_where_the_tokens_are_in_the_text(tmp_path, name):
    run = trained(tmp_path, name)
    text = '  Ann "Lee" can\'t see\tRome.'
    if name == "coref":
        text += "\n\nShe  left Zürich."
    told = run_elmore("task", "predict", run, text, "--json")
    assert told.code == 0, told.err
    result = json.loads(told.out)
    nested = result["sentences"] if name == "coref" else [result["tokens"]]
    offsets = result["offsets"] if name == "coref" else [result["offsets"]]
    assert len(nested) == (2 if name == "coref" else 1)
    assert [[text[start:end] for start, end in each] for each in offsets] == nested
    tokenized = run_elmore("task", "predict", run, "Ann left", "--tokenized", "--json").out
    assert "offsets" not in json.loads(tokenized)


LONG = "Ann Lee saw Rome. Bo left New York again. " * 10  # no file may have so long a name


@pytest.mark.parametrize("name", ["ner", "squad", "srl", "coref"])
def test_a_long_text_is_a_text(tmp_path, name):
    run = trained(tmp_path, name)
    text = f"Who saw Rome?\t{LONG}" if name == "squad" else LONG
    told = run_elmore("task", "predict", run, text, "--json")
    assert told.code == 0, told.err
    result = json.loads(told.out)
    if name == "squad":
        assert result["question"] == "Who saw Rome?"
        assert result["answer"] == LONG[result["start"] : result["end"]]
    elif name == "coref":
        assert [len(sentence) for sentence in result["sentences"]] == [5, 6] * 10
    else:
        assert len(result["tokens"]) == 110
    shown = run_elmore("task", "predict", run, text)
    assert shown.code == 0, shown.err
    assert shown.out.count("\n") == 1


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--embedder", "bert:x"], "embedder 'bert:x': expected none, glove:FILE"),
        (["--embedder", "glove:missing.txt"], "missing.txt"),
        (["--embedder", "elmo:nothing"], "nothing"),
        (["--set", "model.hidden=3"], "unknown key 'hidden'"),
        (["--set", "model.hidden_dim=0"], "model.hidden_dim"),
        (["--set", "elmo.dropout=1"], "elmo.dropout"),
        (["--set", "batch_size=0"], "batch_size must be at least 1"),
        (["--recipe", "none.toml"], "none.toml: no such recipe"),
        (["--dev", "missing.conll"], "missing.conll"),
        (["--test", "missing.conll"], "missing.conll"),
        (["--resume"], "there is no run to resume"),
        (["--resume", "--num-seeds", "2"], "there is no run to resume"),
        (["--num-seeds", "0"], "number of seeds must be at least 1"),
        (["--num-seeds", "2", "--set", "train.seed=4294967295"], "train.seed must be below"),
        (["--train-fractions", "0.1;1"], "--train-fractions: expected numbers separated by commas"),
        (["--train-fractions", "1,2"], "at most 1, found 2"),
        (["--train-fractions", ""], "--train-fractions: expected numbers"),
        (["--set", "data.encoding=latin-99"], "data.encoding: expected a name such as"),
    ],
)
def test_invalid_input_is_reported_in_one_sentence(tmp_path, data, more, sentence):
    done = train(tmp_path, data, *more)
    assert done.code == 1
    assert done.err.startswith("elmore: ")
    assert done.err.count("\n") == 1
    assert sentence in done.err
    assert not (tmp_path / "run").exists()


def test_an_unknown_task_and_a_folder_without_a_run_are_refused(tmp_path, data):
    done = run_elmore("task", "train", "nre", "--train", data, "--dev", data, "-o", "x")
    assert (done.code, done.err) == (1, "elmore: no task 'nre'; did you mean 'ner'?\n")
    done = run_elmore("task", "evaluate", str(tmp_path), data)
    assert done.code == 1
    assert "no trained task found" in done.err


def test_the_bundled_model_is_used_unless_another_is_named(tmp_path, data, monkeypatch):
    small = load_embedder(str(toy_tasks.bilm(tmp_path / "bilm")), device="cpu")
    asked = []

    def load(*names, **options):
        asked.append(names)
        return small

    monkeypatch.setattr(spec, "load_embedder", load)
    done = train(tmp_path, data, embedder=None)
    assert done.code == 0, done.err
    assert "layer weights at input" in done.out
    assert set(asked) == {()}
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert recipe["embedder"]["specification"] == "elmo:"
    assert "[default: (elmo:)]" in run_elmore("task", "train", "--help").out


@pytest.mark.parametrize("more", [(), ("--num-seeds", "2")])
def test_a_resumed_run_reads_the_recorded_embedder_unless_another_is_named(
    tmp_path, data, monkeypatch, more
):
    assert train(tmp_path, data, *more, epochs=1, embedder="none").code == 0
    loaded = count(monkeypatch, spec, "load_embedder")
    done = train(tmp_path, data, *more, "--resume", epochs=1, embedder=None)
    assert done.code == 0, done.err
    assert "is already finished: there is nothing to do" in done.err
    assert loaded == []
    named = f"glove:{toy_tasks.vectors(tmp_path / 'vectors.txt')}"
    done = train(tmp_path, data, *more, "--resume", epochs=1, embedder=named)
    assert done.code == 1
    assert "embedder" in done.err


def test_training_needs_an_output_folder(data):
    done = run_elmore("task", "train", "ner", "--train", data, "--dev", data)
    assert (done.code, done.err) == (1, "elmore: name the run folder with -o, or pass --check\n")


@pytest.mark.parametrize("verb", ["train", "evaluate", "predict"])
def test_help_loads_no_torch(verb):
    code = (
        "import sys, elmore.cli\n"
        f"sys.argv = ['elmore', 'task', {verb!r}, '--help']\n"
        "try:\n    elmore.cli.main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
