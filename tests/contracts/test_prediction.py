"""What a task predicts for the texts of a file is what it is scored on when the file is evaluated.

For each task, a file with what is hard about its kind, and the texts that say the same: the raw
texts where a file holds these, its tokens where it holds tokens.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from elmore.tasks import TASKS, reading, run, solver, sources, storage, task
from elmore.tasks.srl import metric
from tests.tasks import examples


@dataclass(frozen=True)
class Case:
    """A test file and what is typed for it."""

    file: str
    typed: tuple[str, ...]
    tokenized: bool = False
    settings: tuple[str, ...] = ()
    score: Callable | None = None
    """In place of the task's own, where that needs more than a text."""
    compared: Callable = list


def rows(*sentences: str) -> str:
    """Write words with a tag behind the last slash of each as columns."""
    lines = ([word.rpartition("/")[::2] for word in some.split(" ")] for some in sentences)
    return "\n".join("".join(f"{word}\t{tag}\n" for word, tag in some) for some in lines)


def conllu(*sentences: str, notes: tuple[str, ...] = ()) -> str:
    """Write words, a tag or an entity behind a slash, as the columns of CoNLL-U."""
    blocks = []
    for number, some in enumerate(sentences):
        lines = [notes[number]] if notes else []
        for place, item in enumerate(some.split(" "), start=1):
            word, _, said = item.rpartition("/")
            entity = f"Entity={said}" if notes and said != "_" else "_"
            columns = [str(place), word, "_", "_", "_" if notes else said, *"____", entity]
            lines.append("\t".join(columns))
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def squad(*asked: tuple[str, str, str]) -> str:
    lines = (
        {"context": c, "question": q, "answer": a, "answer_start": c.index(a)} for q, c, a in asked
    )
    return "\n".join(map(json.dumps, lines))


PAIRS = (
    "The dog 's tail .\tIt 's \"red\" .",
    "The dog's tail.\tThe dogs ' tail (red).",
    "I do n't .\tI don't.",
)
ASKED = (
    ("Who's left?", 'Ann  Lee left "New\u00a0York".\nBo didn\'t.', "Ann  Lee"),
    ("Who did n't ?", "Ann left. Bo did n't .", "Bo"),
)
CASES = {
    "ner": Case(
        rows("Ann/B-person Lee/I-person left/O New\u00a0York/B-location ./O", "can't/O Mr./O"),
        ("Ann Lee left New\u00a0York .", "can't Mr."),
        tokenized=True,
    ),
    "pos": Case(
        conllu("Ann/NNP left/VBD New\u00a0York/NNP ./.", "1\u20442/CD can't/MD"),
        ("Ann left New\u00a0York .", "1\u20442 can't"),
        tokenized=True,
    ),
    "sst": Case(
        "(3 (2 It) (4 (2 's) (4 lovely)))\n(1 (2 -LRB-) (1 (2 and\\/or) (2 -RRB-)))\n",
        ("It 's lovely", "-LRB- and\\/or -RRB-"),
        tokenized=True,
    ),
    "snli": Case(
        "gold_label\tsentence1\tsentence2\n" + "".join(f"neutral\t{pair}\n" for pair in PAIRS),
        PAIRS,
    ),
    "squad": Case(squad(*ASKED), tuple(f"{q}\t{c}" for q, c, _ in ASKED)),
    "srl": Case(
        "Ann\t-\t(A0*)\t*\nleft\tleave\t(V*)\t*\nto\t-\t(A1*\t*\nrest\trest\t*)\t(V*)\n\nU.S.\t-\n",
        ("Ann left to rest", "U.S."),
        tokenized=True,
        score=lambda gold, found: metric.score_found([e.frames for e in gold], found),
        compared=lambda found: [
            [(frame["predicate"], frame["tags"]) for frame in frames if frame["found"]]
            for frames in found
        ],
    ),
    "coref": Case(
        conllu(
            *("Ann/(1) met/_ Mr./(2 Lee/2) ./_", "He/(2) left/_ !/_ ?/_", "She/(1) left/_ ./_"),
            notes=("# newdoc id = a", "# speaker = Ann Lee", "# speaker = Bo"),
        ),
        ("Ann met Mr. Lee .\nAnn Lee\tHe left ! ?\nBo\tShe left .",),
        tokenized=True,
    ),
}
CASES["snli, tokenized"] = Case(
    CASES["snli"].file, PAIRS, settings=("data.tokenized=true",)
)  # the recipe says it of texts that are typed, too


def untrained(place: Path, name: str, case: Case) -> Path:
    """Save a network with random weights, in which every token of the file counts."""
    kind = task.find(name)
    recipe = task.recipe(kind, None, [*examples.small(name), *case.settings])
    (place / "data.txt").write_text(case.file, encoding="utf-8")
    read = kind(recipe).read(place / "data.txt")
    words = reading.known_words((s for e in read for s in kind(recipe).sentences(e)), min_count=1)
    labels = kind(recipe).labels(read)
    if name == "snli":
        labels = ["contradiction", "entailment", "neutral"]
    made = solver.build(kind(recipe), recipe, labels, words, sources.opened(sources.parse("none")))
    with torch.no_grad():
        for weights in made.learner.parameters():
            weights.normal_(generator=torch.Generator().manual_seed(weights.numel()))
    storage.save(made, place / "run")
    return place / "run"


@pytest.mark.parametrize("name", [*TASKS, "snli, tokenized"])
def test_predicting_the_texts_of_a_file_is_evaluating_it(tmp_path, name):
    case, kind = CASES[name], name.partition(",")[0]
    place, data = untrained(tmp_path, kind, case), tmp_path / "data.txt"
    scores = run.evaluate(place, data, device="cpu")
    predicted = list(run.predict(place, case.typed, tokenized=case.tokenized, device="cpu"))
    solved = run.opened(place, "cpu")
    gold, found = solved.task.read(data), [prediction.found for prediction in predicted]
    again = (case.score or solved.task.score)(gold, found)
    assert again
    assert again == {name: scores[name] for name in again}
    expected = solved.predict(gold, None)
    assert case.compared(found) == case.compared(expected)
    tokens = [solved.task.sentences(prediction.example) for prediction in predicted]
    assert tokens == [solved.task.sentences(example) for example in gold]
