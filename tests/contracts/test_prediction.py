"""What a task predicts for the texts of a file is what evaluating the file scores."""

from pathlib import Path

import pytest
import torch

from elmore.tasks import checkpoint, registry, run, trained_task
from elmore.tasks.data import encode
from elmore.tasks.embedding import spec
from elmore.tasks.registry import TASKS
from tests.support import toy_tasks
from tests.support.toy_tasks import Typed

CASES = [(name, case) for name in TASKS for case in toy_tasks.typed_files(name)]


def untrained(place: Path, name: str, case: Typed) -> Path:
    """Save a network with random weights, in which every token of the file counts."""
    kind = registry.find_task(name)
    recipe = registry.load_recipe(kind, None, [*toy_tasks.small(name), *case.settings])
    (place / "data.txt").write_text(case.file, encoding="utf-8")
    read = kind(recipe).read(place / "data.txt")
    words = encode.known_words((s for e in read for s in kind(recipe).sentences(e)), min_count=1)
    labels = kind(recipe).labels(read)
    made = trained_task.build(kind(recipe), recipe, labels, words, spec.opened(spec.parse("none")))
    with torch.no_grad():
        for weights in made.learner.parameters():
            weights.normal_(generator=torch.Generator().manual_seed(weights.numel()))
    checkpoint.save(made, place / "run")
    return place / "run"


@pytest.mark.parametrize(("name", "case"), CASES, ids=[name for name, _ in CASES])
def test_predicting_the_texts_of_a_file_is_evaluating_it(tmp_path, name, case):
    place, data = untrained(tmp_path, name, case), tmp_path / "data.txt"
    scores = run.evaluate(place, data, device="cpu")
    predicted = list(run.predict(place, case.texts, tokenized=case.tokenized, device="cpu"))
    solved = run.opened(place, "cpu")
    gold, found = solved.task.read(data), [prediction.found for prediction in predicted]
    again = (case.score or solved.task.score)(gold, found)
    assert again
    assert again == {name: scores[name] for name in again}
    assert case.compared(found) == case.compared(solved.predict(gold, None))
    tokens = [solved.task.sentences(prediction.example) for prediction in predicted]
    assert tokens == [solved.task.sentences(example) for example in gold]


def test_every_task_has_such_a_file():
    assert {name for name, _ in CASES} == set(TASKS)
