import pytest
import torch
from torch.testing import assert_close

from elmore.tasks import registry, trained_task
from elmore.tasks.embedding import spec
from elmore.tasks.registry import TASKS
from tests.support import toy_tasks

UNITS = {
    "ner": "tokens",
    "pos": "tokens",
    "squad": "questions",
    "srl": "decisions",
    "coref": "spans",
}


@pytest.mark.parametrize("name", TASKS)
def test_losses_counts_and_gradients_of_batches_add_up_and_say_what_is_counted(tmp_path, name):
    """Every task gives sums, so the engine may accumulate batches of any size."""
    kind = registry.find_task(name)
    recipe = registry.load_recipe(kind, None, toy_tasks.small(name))
    job = kind(recipe)
    found = job.training(job.read(toy_tasks.write(name, tmp_path / "data.txt")))
    labels = job.labels(found)
    words = sorted({word for e in found for sentence in job.sentences(e) for word in sentence})
    torch.manual_seed(0)
    none = spec.opened(spec.parse("none"), device="cpu")
    solved = trained_task.build(job, recipe, labels, words, none)
    solved.learner.to(torch.float64).eval()

    def summed(*parts):
        solved.learner.zero_grad()
        outcomes = [solved.learner(solved.batch(part, None, truth=True)) for part in parts]
        loss, count = (sum(outcome[i] for outcome in outcomes) for i in (0, 1))
        loss.backward()
        gradients = {
            name: weight.grad.clone()
            for name, weight in solved.learner.named_parameters()
            if weight.grad is not None
        }
        return loss.detach(), count, gradients

    unit = solved.learner.model.unit
    assert unit == UNITS.get(name, "examples")
    if unit in ("tokens", "questions", "examples"):
        tokens = sum(len(sentence) for example in found for sentence in job.sentences(example))
        assert summed(found)[1].item() == (tokens if unit == "tokens" else len(found))
    cut = max(1, len(found) // 4)
    # some tasks compute the loss itself in float32
    assert_close(summed(found[:cut], found[cut:]), summed(found), rtol=1e-4, atol=1e-7)


def test_a_prediction_that_fails_leaves_the_network_in_training(monkeypatch):
    kind = registry.find_task("ner")
    recipe = registry.load_recipe(kind, None, toy_tasks.small("ner"))
    none = spec.opened(spec.parse("none"), device="cpu")
    solved = trained_task.build(kind(recipe), recipe, ["O"], ["Ann"], none)
    solved.learner.train()

    def full(batch):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(solved.learner, "predict", full)
    with pytest.raises(torch.OutOfMemoryError):
        solved.predict([solved.task.example("Ann left", tokenized=True)], None)
    assert solved.learner.training
