"""Two ranks with half the rows each are one with all: losses, weights and perplexity."""

import json

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from tests.support import cli_processes, toy_corpus, toy_teacher

NUM_STEPS = 12


def pretrain(folder, corpus, name: str, ranks: int, *overrides: str) -> list[dict]:
    """Train without dropout in float64, and give the lines of metrics.jsonl."""
    (folder / "recipe.toml").write_text(toy_corpus.RECIPE)
    chosen = [f"train.steps={NUM_STEPS}", "model.dropout=0", "train.precision=float64", *overrides]
    settings = [part for value in chosen for part in ("--set", value)]
    out = folder / f"{name}-{ranks}"
    results = cli_processes.run(
        "pretrain", str(folder / "recipe.toml"), str(corpus.path), "-o", str(out),
        "--device", "cpu", *settings, ranks=ranks,
    )  # fmt: skip
    assert [result.code for result in results] == [0] * ranks, results
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("softmax.kind=full", "train.optimizer=adagrad", "train.max_grad_norm=0.1"),
        ("softmax.kind=adaptive", "train.grad_accum_steps=2"),
    ],
    ids=["sampled", "full, clipped", "adaptive, accumulated"],
)
def test_two_ranks_follow_one(tmp_path, corpus, overrides):
    assert_two_follow_one(tmp_path, corpus, overrides)


def test_two_ranks_follow_one_with_a_teacher(tmp_path, corpus):
    teacher = toy_teacher.save(tmp_path / "teacher")
    overrides = (f"distillation.teacher={teacher}", "distillation.weight=3", "train.ema_decay=0.9")
    assert_two_follow_one(tmp_path, corpus, overrides)
    (first, *_) = (tmp_path / "run-2" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(first)["auxiliary_loss"] > 0
    names = load_file(tmp_path / "run-2" / f"checkpoints/step-{NUM_STEPS:08}/model.safetensors")
    assert "layer_maps.0.weight" in names


def assert_two_follow_one(tmp_path, corpus, overrides) -> None:
    one, two = (pretrain(tmp_path, corpus, "run", ranks, *overrides) for ranks in (1, 2))
    assert len(one) == len(two) == NUM_STEPS
    for alone, together in zip(one, two, strict=True):
        assert together == pytest.approx(alone, rel=1e-9, abs=0)
    last = f"checkpoints/step-{NUM_STEPS:08}"
    for kind in ("model", "optimizer", "recurrent_state"):
        result, expected = (
            load_file(tmp_path / f"run-{ranks}" / last / f"{kind}.safetensors") for ranks in (2, 1)
        )
        assert_close(result, expected, rtol=1e-9, atol=1e-9)
    scores = [
        json.loads((tmp_path / f"run-{ranks}" / "best" / "config.json").read_text())["card"][
            "training"
        ]["scores"]
        for ranks in (1, 2)
    ]
    assert scores[1] == pytest.approx(scores[0], rel=1e-9)


def test_two_ranks_measure_what_one_does_and_one_of_them_prints(tmp_path, corpus):
    pretrain(tmp_path, corpus, "run", 1, "train.steps=2")
    command = ("evaluate", str(tmp_path / "run-1"), str(corpus.path), "--json", "--device", "cpu")
    (alone,) = cli_processes.run(*command)
    first, second = cli_processes.run(*command, ranks=2)
    assert (alone.code, first.code, second.code) == (0, 0, 0)
    assert json.loads(first.out) == pytest.approx(json.loads(alone.out), rel=1e-6)
    assert second.out == ""


def test_rows_that_cannot_be_shared_are_refused_by_all(tmp_path, corpus):
    (tmp_path / "recipe.toml").write_text(toy_corpus.RECIPE)
    results = cli_processes.run(
        "pretrain", str(tmp_path / "recipe.toml"), str(corpus.path), "-o", str(tmp_path / "run"),
        "--device", "cpu", "--set", "stream.batch_size=3", ranks=2,
    )  # fmt: skip
    for result in results:
        assert result.code == 1, result
        assert "3 rows cannot be divided evenly among 2 processes" in result.err
        assert "Traceback" not in result.err
    assert not (tmp_path / "run").exists()


def test_fine_tuning_prints_once(tmp_path, corpus):
    pretrain(tmp_path, corpus, "run", 1, "train.steps=2")
    command = (
        "finetune", str(tmp_path / "run-1"), str(corpus.path), "-o", str(tmp_path / "tuned"),
        "--device", "cpu", "--json", "--set", "train.steps=2", "--set", "stream.batch_size=4",
    )  # fmt: skip
    first, second = cli_processes.run(*command, ranks=2)
    assert (first.code, second.code) == (0, 0), (first, second)
    (result,) = json.loads(first.out)
    assert result["new_words"] == 0
    assert result["before"] > 1
    assert second.out == ""


def test_an_error_of_one_rank_ends_the_others_too(tmp_path, corpus):
    """The folder is looked at by one; nobody waits for it for ever."""
    (tmp_path / "recipe.toml").write_text(toy_corpus.RECIPE)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    first, second = cli_processes.run(
        "pretrain", str(tmp_path / "recipe.toml"), str(corpus.path), "-o", str(tmp_path / "run"),
        "--device", "cpu", ranks=2,
    )  # fmt: skip
    assert (first.code, second.code) == (1, 1), (first, second)
    assert "exists and is not empty" in first.err
    assert "another process of this training died" in second.err
    assert "Traceback" not in first.err + second.err
