"""What a task predicts for the texts of a file is what evaluating the file scores."""

from pathlib import Path

import pytest
import torch

from elmore.tasks import registry, trained_task
from elmore.tasks.checkpoint import load_task, save_task
from elmore.tasks.data.encode import build_vocabulary
from elmore.tasks.embedding.spec import open_embedders, parse_spec
from elmore.tasks.registry import TASKS
from tests.support import toy_tasks
from tests.support.toy_tasks import Typed

CASES = [(name, case) for name in TASKS for case in toy_tasks.typed_files(name)]


def untrained(folder: Path, name: str, case: Typed) -> Path:
    """Save a network with random weights, in which every token of the file counts."""
    kind = registry.find_task(name)
    task = kind(registry.load_recipe(kind, None, [*toy_tasks.small(name), *case.settings]))
    (folder / "data.txt").write_text(case.file, encoding="utf-8")
    read = task.read_examples(folder / "data.txt")
    words = build_vocabulary((s for e in read for s in task.sentences(e)), min_count=1)
    none = open_embedders(parse_spec("none"))
    made = trained_task.build(task, task.collect_labels(read), words, none)
    with torch.no_grad():
        for weights in made.network.parameters():
            weights.normal_(generator=torch.Generator().manual_seed(weights.numel()))
    save_task(made, folder / "run")
    return folder / "run"


@pytest.mark.parametrize(("name", "case"), CASES, ids=[name for name, _ in CASES])
def test_predicting_the_texts_of_a_file_is_evaluating_it(tmp_path, name, case):
    folder, data = untrained(tmp_path, name, case), tmp_path / "data.txt"
    trained = load_task(folder, device="cpu")
    scores = trained.evaluate(data)
    predicted = list(trained.predict(case.texts, tokenized=case.tokenized))
    task = trained.task
    gold, result = task.read_examples(data), [prediction.prediction for prediction in predicted]
    again = (case.score or task.score)(gold, result)
    assert again
    assert again == {name: scores[name] for name in again}
    assert case.compared(result) == case.compared(trained.predict_examples(gold))
    tokens = [task.sentences(prediction.example) for prediction in predicted]
    assert tokens == [task.sentences(example) for example in gold]


def test_every_task_has_such_a_file():
    assert {name for name, _ in CASES} == set(TASKS)
