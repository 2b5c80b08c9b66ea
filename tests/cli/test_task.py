import json
import subprocess
import sys

import pytest

from tests.cli.running import elmore_command
from tests.tasks import examples


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ELMORE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def data(tmp_path):
    return str(examples.write("ner", tmp_path / "data.txt"))


def train(tmp_path, data, *more, epochs=2):
    chosen = [*examples.small("ner"), f"train.epochs={epochs}"]
    settings = [part for value in chosen for part in ("--set", value)]
    out = str(tmp_path / "run")
    files = ["--train", data, "--dev", data, "-o", out]
    return elmore_command("task", "train", "ner", *files, "--device", "cpu", *settings, *more)


def test_train_evaluate_and_predict(tmp_path, data):
    bilm = examples.bilm(tmp_path / "bilm")
    done = train(tmp_path, data, "--embedder", f"elmo:{bilm}", "--test", data, epochs=12)
    assert done.code == 0, done.err
    dev, test, layers = done.out.splitlines()
    assert dev.startswith("dev  f1 ")
    assert test.removeprefix("test") == dev.removeprefix("dev")
    shares = [
        float(share) for share in layers.removeprefix("layers at input  ").split("  ")[0].split()
    ]
    assert len(shares) == 3
    assert sum(shares) == pytest.approx(1, abs=0.002)
    assert "perplexity" not in done.err

    run = str(tmp_path / "run")
    scores = json.loads(elmore_command("task", "evaluate", run, data, "--json").out)
    assert f"dev  f1 {scores['f1']:.2f}" in dev
    assert f"f1 {scores['f1']:.2f}" in elmore_command("task", "evaluate", run, data).out
    shown = elmore_command("task", "predict", run, "Ann Lee saw Rome.", "Bo left.").out
    assert len(shown.splitlines()) == 2
    assert "Ann" in shown
    line = elmore_command("task", "predict", run, "a b. c", "--tokenized", "--json").out
    assert json.loads(line)["tokens"] == ["a", "b.", "c"]


def test_a_file_where_a_text_belongs_is_pointed_out(tmp_path, data):
    assert train(tmp_path, data).code == 0
    text = tmp_path / "text.txt"
    text.write_text("Ann left .")
    found = elmore_command("task", "predict", str(tmp_path / "run"), str(text))
    assert found.code == 1
    assert f"{text} is a file, and a text was expected" in found.err


def test_lines_of_stdin_are_predicted(tmp_path, data, monkeypatch):
    import io

    assert train(tmp_path, data).code == 0
    typed = io.TextIOWrapper(io.BytesIO(b"Bo left .\n\nAnn saw Rome .\n"))
    monkeypatch.setattr(sys, "stdin", typed)
    shown = elmore_command("task", "predict", str(tmp_path / "run")).out
    assert len(shown.split("\n")) == 4


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
        (["--resume"], "no run to resume there"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(tmp_path, data, more, sentence):
    done = train(tmp_path, data, *more)
    assert done.code == 1
    assert done.err.startswith("elmore: ")
    assert done.err.count("\n") == 1
    assert sentence in done.err
    assert not (tmp_path / "run").exists()


def test_a_task_nobody_knows_and_a_run_that_is_none(tmp_path, data):
    done = elmore_command("task", "train", "nre", "--train", data, "--dev", data, "-o", "x")
    assert (done.code, done.err) == (1, "elmore: no task 'nre'; did you mean 'ner'?\n")
    done = elmore_command("task", "evaluate", str(tmp_path), data)
    assert done.code == 1
    assert "no trained task there" in done.err


@pytest.mark.parametrize("verb", ["train", "evaluate", "predict"])
def test_help_loads_no_torch(verb):
    code = (
        "import sys, elmore.cli\n"
        f"sys.argv = ['elmore', 'task', {verb!r}, '--help']\n"
        "try:\n    elmore.cli.main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
