"""Each task learns 20 examples by heart, through the one engine, with any embedder."""

import pytest

from elmore.tasks import registry, run
from elmore.tasks.registry import TASKS
from tests.support import toy_tasks


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("embedder", ["none", "glove:vectors+elmo:bilm"])
def test_a_task_overfits_twenty_examples_to_a_perfect_score(tmp_path, monkeypatch, name, embedder):
    monkeypatch.setenv("ELMORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    toy_tasks.vectors(tmp_path / "vectors")
    toy_tasks.bilm(tmp_path / "bilm")
    kind = registry.find_task(name)
    data = toy_tasks.write(name, tmp_path / "data.txt")
    recipe = registry.load_recipe(kind, None, [*toy_tasks.small(name), "train.patience=0"])
    wanted = dict.fromkeys([kind.metric, *toy_tasks.other_scores(name)], 100)
    reached = {}
    for report in run.train(
        kind, recipe, data, data, tmp_path / "run", embedder=embedder, device="cpu"
    ):
        reached = {score: report.scores.get(score) for score in wanted}
        if reached == wanted:
            break
    assert reached == wanted
    assert run.evaluate(tmp_path / "run", data, device="cpu")[kind.metric] == 100
