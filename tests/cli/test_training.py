"""pretrain, finetune, evaluate and score: what they print, and every way to go wrong."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError

from elmore.lm import scoring
from elmore.train import checkpoint, schedule
from elmore.weights import storage
from tests.support import toy_corpus
from tests.support.cli_runner import Result, run_elmore
from tests.support.fake_checkpoints import bilm_options, bilm_weights, write_bilm


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "recipe.toml"
    path.write_text(toy_corpus.RECIPE)
    return path


@pytest.fixture(scope="module")
def trained(recipe, corpus, tmp_path_factory) -> tuple[Path, Result]:
    """A run to its end, and what was said of it."""
    out = tmp_path_factory.mktemp("trained") / "run"
    return out, pretrain(recipe, corpus.path, out, "train.steps=16")


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Path:
    """A model of the published kind: no softmax."""
    path = tmp_path_factory.mktemp("bare")
    settings = bilm_options()
    write_bilm(path, settings, bilm_weights(settings, np.random.default_rng(0)))
    return path


def pretrain(recipe, shards, out, *overrides: str, more: tuple[str, ...] = ()) -> Result:
    settings = [part for value in overrides for part in ("--set", value)]
    return run_elmore(
        "pretrain", str(recipe), str(shards), "-o", str(out), "--device", "cpu", *settings, *more
    )


def sentence(result: Result) -> str:
    """The one sentence of a refusal; lines of progress may stand before it."""
    assert result.code == 1, result
    assert result.out == ""
    assert "Traceback" not in result.err
    *before, last = result.err.splitlines()
    assert last.startswith("elmore: ")
    assert not any(line.startswith("elmore: ") for line in before)
    return last


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_pretraining_says_how_it_goes(trained):
    out, result = trained
    assert (result.code, result.out) == (0, "")
    first, *rest = result.err.splitlines()
    assert first.startswith("pretraining: 4 of 16  loss ")
    assert "perplexity" in first
    assert "tokens/s" in first
    looks = [line for line in rest if line.startswith("update ")]
    assert [line.split(":")[0] for line in looks] == ["update 8", "update 16"]
    assert "(best so far)" in looks[0]
    assert sorted(path.name for path in out.iterdir() if "events" not in path.name) == [
        "best",
        "checkpoints",
        "metrics.jsonl",
        "recipe.json",
    ]


def test_evaluate_prints_a_line_or_json(trained, corpus):
    out, _ = trained
    result = run_elmore("evaluate", str(out), str(corpus.path), "--json", "--device", "cpu")
    found = json.loads(result.out)
    assert list(found) == [
        "forward",
        "backward",
        "perplexity",
        "bits_per_character",
        "tokens",
        "oov",
    ]
    assert found["tokens"] == corpus.split("valid").num_tokens
    shown = run_elmore("evaluate", str(out), str(corpus.path), "--device", "cpu").out
    assert shown.startswith(f"perplexity {found['perplexity']:.2f}  forward ")
    assert shown.endswith("unknown words 0.48 %\n")


def test_evaluate_knows_states_and_splits(trained, corpus):
    out, _ = trained
    command = ("evaluate", str(out), str(corpus.path), "--json", "--device", "cpu")
    sentences, carried, train = (
        json.loads(run_elmore(*command, *more).out)
        for more in ((), ("--carry-state",), ("--split", "train"))
    )
    assert carried["tokens"] == sentences["tokens"]
    assert carried["perplexity"] != sentences["perplexity"]
    assert train["tokens"] == corpus.split("train").num_tokens


def test_score_prints_a_word_a_line_or_a_text_a_line(trained, tmp_path):
    out, _ = trained
    (tmp_path / "text.txt").write_text("two ships come .\n\na xylophone\n")
    command = ("score", str(out), str(tmp_path / "text.txt"), "--tokenized", "--device", "cpu")
    shown = run_elmore(*command)
    assert (shown.code, shown.err) == (0, "")
    rows = [line.split("\t") for line in shown.out.split("\n")]
    assert [row[0] for row in rows] == [
        "two",
        "ships",
        "come",
        ".",
        "",
        "",
        "a",
        "xylophone",
        "",
        "",
    ]
    assert rows[7][3:] == ["?"]
    texts = [json.loads(line) for line in run_elmore(*command, "--json").out.splitlines()]
    assert [text["line"] for text in texts] == [0, 1, 2]
    assert texts[0]["tokens"] == ["two", "ships", "come", "."]
    assert texts[0]["forward"][0] == pytest.approx(float(rows[0][1]), abs=1e-4)
    assert texts[0]["backward"][3] == pytest.approx(float(rows[3][2]), abs=1e-4)
    assert texts[2]["known"] == [True, False]
    assert all(value < 0 for text in texts for value in text["forward"] + text["backward"])


def test_the_texts_of_a_file_are_scored_together_and_those_of_a_pipe_one_by_one(
    trained, tmp_path, monkeypatch
):
    text = "".join(f"{line}\n" for line in ["", *toy_corpus.sentences(40, seed=2)])
    (tmp_path / "text.txt").write_text(text)
    score_batch, sizes = scoring.score_batch, []

    def watching(bundle, sentences):
        sizes.append(len(sentences))
        return score_batch(bundle, sentences)

    monkeypatch.setattr(scoring, "score_batch", watching)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    command = ("score", str(trained[0]), "--tokenized", "--device", "cpu", "--substitutes", "1")
    shown = run_elmore(*command, str(tmp_path / "text.txt"))
    assert sizes == [32, 9]
    assert run_elmore(*command, "-").out == shown.out
    assert sizes[2:] == [1] * 41


def test_tokens_are_scored_as_they_are(trained, tmp_path):
    out, _ = trained
    (tmp_path / "text.jsonl").write_text(json.dumps({"text": ["two ships", "come"]}))
    command = ("score", str(out), str(tmp_path / "text.jsonl"), "--device", "cpu", "--json")
    assert json.loads(run_elmore(*command).out)["tokens"] == ["two ships", "come"]


def test_fine_tuning_prints_perplexity_before_and_after(trained, corpus, tmp_path):
    result = run_elmore(
        "finetune", str(trained[0]), str(corpus.path), "-o", str(tmp_path / "run"), "--json",
        "--device", "cpu", "--set", "train.steps=4", "--set", "stream.batch_size=4",
    )  # fmt: skip
    assert result.code == 0, result
    (found,) = json.loads(result.out)
    assert list(found) == ["before", "after", "num_words", "new_words"]
    assert found["after"] < found["before"]
    licence, measured, *_, last = result.err.splitlines()
    assert licence.startswith("the licence of the text is unknown; for the model card, pass --set")
    assert measured == "measuring the perplexity before the first update"
    assert "\nfine-tuning: 4 of 4  loss " in result.err
    assert last == "measuring the perplexity of the best model"


def test_fine_tuning_a_model_without_a_softmax_says_what_it_learns_first(bare, corpus, tmp_path):
    short = [f"--set={part}.steps=4" for part in ("softmax_train", "train")]
    command = ("finetune", str(bare), str(corpus.path), "-o", str(tmp_path / "run"), *short)
    settings = ("--set", "stream.batch_size=4", "--set", "card.licence=CC0-1.0")
    result = run_elmore(*command, *settings, "--device", "cpu")
    assert result.code == 0, result
    said = [line for line in result.err.splitlines() if ":" not in line or "softmax" in line]
    assert said == [
        f"the model has no softmax: training one over {len(corpus.vocabulary)} words first",
        "measuring the perplexity before the first update",
        "measuring the perplexity of the best model",
    ]


def test_a_folder_without_shards_is_refused(recipe, tmp_path):
    (tmp_path / "shards").mkdir()
    message = sentence(pretrain(recipe, tmp_path / "shards", tmp_path / "run"))
    assert message == f"elmore: {tmp_path}/shards holds no index.json; run 'elmore prepare' first"
    assert not (tmp_path / "run").exists()


def test_a_shard_that_was_altered_is_named(recipe, corpus, tmp_path):
    shutil.copytree(corpus.path, tmp_path / "shards")
    path = tmp_path / "shards" / "train-00000.tokens.npy"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    message = sentence(pretrain(recipe, tmp_path / "shards", tmp_path / "run"))
    assert f"{path}: altered or damaged" in message
    path.write_bytes(data[:-8])
    assert f"{path}: cut short" in sentence(pretrain(recipe, path.parent, tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_model_is_not_measured_on_a_shard_that_was_altered(trained, corpus, tmp_path):
    shutil.copytree(corpus.path, tmp_path / "shards")
    command = ("evaluate", str(trained[0]), str(tmp_path / "shards"), "--device", "cpu")
    assert run_elmore(*command).code == 0
    path = tmp_path / "shards" / "valid-00000.tokens.npy"
    data = bytearray(path.read_bytes())
    data[-4] ^= 1
    path.write_bytes(data)
    assert f"{path}: altered or damaged" in sentence(run_elmore(*command))


@pytest.mark.parametrize(
    ("overrides", "found"),
    [
        (["stream.batch_size=1000"], "the text has 3,163 tokens, too few for 1000 rows of 5 steps"),
        (["train.patiense=1"], "train: unknown key 'patiense'; did you mean 'patience'?"),
        (["train.rate=1"], "train: unknown key 'rate'; did you mean 'lr'?"),
        (["stream.rows=1"], "stream: unknown key 'rows'; did you mean 'batch_size'?"),
        (["trian.lr=1"], "unknown key 'trian'; did you mean 'train'?"),
        (["train.lr"], "'train.lr' is not of the form section.key=value"),
        (["train.lr=fast"], "train: lr: expected float, found 'fast'"),
        (["train.lr=-1"], "train.lr must be above 0, found -1.0"),
        (["train.schedule=linear"], "expected one of 'constant', 'cosine', 'inverse_sqrt'"),
        (["train.seed=4294967296"], "train.seed must be below 2**32, found 4294967296"),
        (["stream.reset_probability=2"], "stream.reset_probability must be from 0 to 1, found 2.0"),
        (["softmax.kind=hierarchical"], "expected one of 'sampled', 'full', 'adaptive'"),
        (["softmax.unique=true", "softmax.num_samples=500"], "must not exceed the 54 words"),
        (["model.lstm.cell_dim=2"], "must not exceed lstm.cell_dim (2)"),
    ],
)
def test_invalid_settings_leave_no_files(recipe, corpus, tmp_path, overrides, found):
    assert found in sentence(pretrain(recipe, corpus.path, tmp_path / "run", *overrides))
    assert not (tmp_path / "run").exists()


def test_a_recipe_that_is_not_there(corpus, tmp_path):
    message = sentence(pretrain("gigantic", corpus.path, tmp_path / "run"))
    assert "gigantic: no such recipe; name a file, or one of english, english-large" in message


@pytest.mark.parametrize("device", ["meta", "cuda:9", "mps:0:0"])
def test_a_device_that_is_not_there_leaves_nothing_behind(recipe, corpus, tmp_path, device):
    more = ("--device", device)
    message = sentence(
        run_elmore("pretrain", str(recipe), str(corpus.path), "-o", str(tmp_path / "r"), *more)
    )
    assert f"device '{device}'" in message
    assert not (tmp_path / "r").exists()


def test_a_run_that_is_there_already(recipe, corpus, trained):
    before = contents(trained[0])
    message = sentence(pretrain(recipe, corpus.path, trained[0]))
    assert "exists and is not empty; pass --resume to continue it, or choose another" in message
    assert contents(trained[0]) == before


def test_a_resume_with_another_recipe_names_what_differs(recipe, corpus, trained):
    before = contents(trained[0])
    message = sentence(
        pretrain(recipe, corpus.path, trained[0], "train.steps=15", "stream.batch_size=5",
                 more=("--resume",))
    )  # fmt: skip
    assert "another recipe (stream.batch_size 4 -> 5, train.steps 16 -> 15); resume with" in message
    assert contents(trained[0]) == before


def test_a_resume_with_another_text_is_another_recipe(recipe, trained, tmp_path):
    other = toy_corpus.prepare_corpus(tmp_path, "shards", toy_corpus.sentences(100, seed=9))
    message = sentence(
        pretrain(recipe, other.path, trained[0], "train.steps=16", more=("--resume",))
    )
    assert "another recipe (corpus " in message


def test_a_resume_without_a_run(recipe, corpus, tmp_path):
    message = sentence(pretrain(recipe, corpus.path, tmp_path / "run", more=("--resume",)))
    assert message == f"elmore: {tmp_path}/run: there is no run to resume; omit --resume"
    assert not (tmp_path / "run").exists()


def test_init_of_another_shape(recipe, corpus, trained, tmp_path):
    more = ("--init", str(trained[0]))
    message = sentence(
        pretrain(recipe, corpus.path, tmp_path / "run", "model.lstm.num_layers=3", more=more)
    )
    assert "--init: that model has another shape (model.lstm: {'num_layers': 2," in message
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_not_a_number_names_the_last_good_checkpoint(
    recipe, corpus, tmp_path, monkeypatch
):
    """The rate is harmless for nine updates; what the tenth did shows at the next."""
    monkeypatch.setattr(schedule, "lr_factor", lambda _, step, *__: 1e-33 if step < 9 else 1.0)
    out = tmp_path / "run"
    often = ("train.save_every=1", "train.log_every=1", "train.evaluate_every=100")
    message = sentence(pretrain(recipe, corpus.path, out, "train.lr=1e30", *often))
    assert "at update 11; " in message
    assert f"the last good checkpoint is {out}/checkpoints/step-00000009; restart with" in message
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["step-00000009"]
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 11))


def test_an_absurd_learning_rate_is_detected_at_once(recipe, corpus, tmp_path):
    message = sentence(pretrain(recipe, corpus.path, tmp_path / "run", "train.lr=1e30"))
    assert (
        "; there is no good checkpoint; restart with a lower train.lr or train.max_grad_norm"
        in message
    )


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("full")])
def test_a_disk_that_fills_leaves_the_checkpoint_before(
    recipe, corpus, tmp_path, monkeypatch, error
):
    out = tmp_path / "run"
    save_file = checkpoint.save_file

    def full(tensors, path):
        if "step-00000016" in str(path):
            raise error
        save_file(tensors, path)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", full)
        message = sentence(pretrain(recipe, corpus.path, out))
    assert "step-00000016: could not be written (" in message
    assert f"the last good checkpoint is {out}/checkpoints/step-00000008" in message
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-00000008"]
    assert pretrain(recipe, corpus.path, out, more=("--resume",)).code == 0


def test_a_disk_that_fills_leaves_the_best_model_before(recipe, corpus, tmp_path, monkeypatch):
    out, kept = tmp_path / "run", []
    save_file = storage.save_file

    def full(tensors, path, **more):
        if kept == ["model.safetensors", "softmax.safetensors", "model.safetensors"]:
            raise SafetensorError("No space left on device")
        kept.append(path.name)
        save_file(tensors, path, **more)

    monkeypatch.setattr(storage, "save_file", full)
    message = sentence(pretrain(recipe, corpus.path, out))
    assert "run/best: could not be written (No space left on device)" in message
    text = run_elmore("evaluate", str(out), str(corpus.path), "--device", "cpu")
    assert text.code == 0


@pytest.mark.parametrize("command", ["evaluate", "score"])
def test_a_model_without_a_softmax_cannot_say_how_likely_words_are(bare, corpus, tmp_path, command):
    (tmp_path / "text.txt").write_text("a storm\n")
    other = corpus.path if command == "evaluate" else tmp_path / "text.txt"
    message = sentence(run_elmore(command, str(bare), str(other), "--device", "cpu"))
    assert "has no softmax, so it cannot compute word probabilities" in message
    assert "'elmore finetune'" in message


def test_a_text_without_the_requested_split_is_refused(trained, tmp_path):
    other = toy_corpus.prepare_corpus(tmp_path, "shards", toy_corpus.sentences(50))
    command = ("evaluate", str(trained[0]), str(other.path), "--device", "cpu")
    assert run_elmore(*command).code == 0  # then all of it is meant
    assert "has no valid text; prepare it" in sentence(run_elmore(*command, "--split", "valid"))


def test_a_run_that_has_no_model_yet(recipe, corpus, tmp_path, monkeypatch):
    """Its folder is there, its first evaluation was not reached."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.json").write_text("{}")
    message = sentence(run_elmore("evaluate", str(tmp_path / "run"), str(corpus.path)))
    assert (
        f"{tmp_path}/run: found recipe.json; expected config.json and model.safetensors" in message
    )


@pytest.mark.parametrize(
    "command",
    [
        ("pretrain", "tiny"),
        ("pretrain", "tiny", "shards"),
        ("finetune", "model", "shards"),
        ("evaluate",),
        ("evaluate", "model", "shards", "more"),
        ("evaluate", "model", "shards", "--state", "carried"),
    ],
)
def test_missing_and_misspelled_options_are_usage_errors(command):
    assert run_elmore(*command).code == 2


@pytest.mark.parametrize("command", ["pretrain", "finetune", "evaluate", "score"])
def test_help_says_what_it_is_for(command):
    result = run_elmore(command, "--help")
    assert result.code == 0
    assert "--device" in result.out
