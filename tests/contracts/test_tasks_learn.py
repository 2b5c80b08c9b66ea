"""Each task learns 20 examples by heart, through the one engine, with and without an embedder."""

import pytest

from elmore.tasks.checkpoint import load_task
from elmore.tasks.registry import TASKS, find_task, list_recipes, load_recipe
from elmore.tasks.train import train
from tests.support import toy_tasks
from tests.support.sweeps import pick

BOTH = "glove:vectors+elmo:bilm"
OTHER_RECIPES = [
    (name, recipe)
    for name in TASKS
    for recipe in list_recipes(find_task(name))
    if recipe != "recipe"
]
OTHER_NETWORKS = ["srl", "coref"]  # not only other sizes, which `small` overrides
CASES = [
    *((name, BOTH, None) for name in TASKS),
    *((name, "none", None) for name in pick(["ner", "sst"], list(TASKS))),
    *(
        (name, BOTH, recipe)
        for name, recipe in OTHER_RECIPES
        if name in pick(OTHER_NETWORKS, list(TASKS))
    ),
]


class LearnedError(Exception):
    """Ends a training whose scores are perfect."""


@pytest.mark.parametrize(("name", "embedder", "recipe"), CASES)
def test_a_task_overfits_twenty_examples_to_a_perfect_score(
    tmp_path, monkeypatch, name, embedder, recipe
):
    monkeypatch.setenv("ELMORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    toy_tasks.vectors(tmp_path / "vectors")
    toy_tasks.bilm(tmp_path / "bilm")
    kind = find_task(name)
    data = toy_tasks.write(name, tmp_path / "data.txt")
    patient = ["train.patience=0", "train.schedule=constant"]  # some learn nothing for epochs
    chosen = load_recipe(kind, recipe, [*toy_tasks.small(name), *patient])
    perfect = dict.fromkeys([kind.metric, *toy_tasks.other_scores(name)], 100)

    def stop_if_learned(report):
        if {score: report.scores.get(score) for score in perfect} == perfect:
            raise LearnedError

    with pytest.raises(LearnedError):
        train(
            kind, chosen, data, data, tmp_path / "run", embedder=embedder, device="cpu",
            on_report=stop_if_learned,
        )  # fmt: skip
    assert load_task(tmp_path / "run", device="cpu").evaluate(data)[kind.metric] == 100
