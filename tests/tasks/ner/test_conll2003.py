"""CoNLL-2003 in its real format, and scores equal to conlleval's, on made-up sentences."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmore.tasks.data.columns import TaggedSentence
from elmore.tasks.ner.data import read_conll
from elmore.tasks.ner.metric import score
from tests.support import toy_tasks
from tests.support.cli_runner import run_elmore

# IOB1, as eng.train has it: B- only between two names of one type, in the chunks as well.
LINES = """\
-DOCSTART- -X- O O

Mills NNP I-NP I-PER
of IN I-PP O
North NNP I-NP I-ORG
Bank NNP I-NP I-ORG
Leeds NNP B-NP B-ORG
won VBD I-VP O
. . O O

Leeds NNP I-NP I-ORG

Leeds NNP I-NP I-ORG
Ann NNP I-NP I-PER
Lee NNP B-NP B-PER
-DOCSTART- -X- -X- O

ten CD I-NP O
"""
SENTENCES = [
    TaggedSentence(
        ["Mills", "of", "North", "Bank", "Leeds", "won", "."],
        ["B-PER", "O", "B-ORG", "I-ORG", "B-ORG", "O", "O"],
    ),
    TaggedSentence(["Leeds"], ["B-ORG"]),
    TaggedSentence(["Leeds", "Ann", "Lee"], ["B-ORG", "B-PER", "B-PER"]),
    TaggedSentence(["ten"], ["O"]),
]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n", "\n\n\n"])
def test_the_real_format_is_read_whole(tmp_path, ending, last):
    path = tmp_path / "eng.train"
    path.write_bytes((LINES.rstrip("\n") + last).replace("\n", ending).encode())
    assert read_conll(path) == SENTENCES
    chunks = read_conll(path, column=2)[0].tags
    assert chunks[:5] == ["B-NP", "B-PP", "B-NP", "I-NP", "B-NP"]


def test_a_model_trains_on_it_and_its_predictions_score_as_conlleval_counts(tmp_path):
    for split in ("train", "testa", "testb"):
        (tmp_path / f"eng.{split}").write_text(LINES, newline="\r\n")
    files = [f"--{s}={tmp_path}/eng.{f}" for s, f in (("train", "train"), ("dev", "testa"))]
    test, run = f"{tmp_path}/eng.testb", f"{tmp_path}/run"
    settings = [f"--set={s}" for s in (*toy_tasks.small("ner"), "train.epochs=6")]
    done = run_elmore("task", "train", "ner", *files, "--embedder=none", *settings, "-o", run)
    assert done.code == 0, done.err
    predictions = tmp_path / "predicted.txt"
    words = ["task", "evaluate", run, test, f"--predictions={predictions}", "--json"]
    ours = json.loads(run_elmore(*words).out)
    columns = [line.split(" ") for line in predictions.read_text().splitlines()]
    assert ours["f1"] == pytest.approx(conlleval([line[1:] for line in columns]))
    assert ours["f1"] > 0


TAGS = ("O", "I-PER", "I-ORG", "B-PER", "B-ORG")
sentences = st.lists(
    st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS)), min_size=1, max_size=6),
    min_size=1,
    max_size=5,
)


@given(sentences)
def test_scores_are_those_of_conlleval(rows):
    """For IOB1, BIO and ill-formed tags, gold and predicted."""
    lines = [pair for sentence in rows for pair in [*sentence, ()]]
    gold, predicted = ([[pair[i] for pair in sentence] for sentence in rows] for i in (0, 1))
    assert score(gold, predicted)["f1"] == pytest.approx(conlleval(lines))


@given(sentences)
def test_tags_converted_by_the_reader_score_as_they_were_written(tmp_path_factory, rows):
    """IOB1 gold tags in a file, and the predictions of a model, which are in BIO."""
    path = tmp_path_factory.mktemp("conll") / "gold"
    path.write_text("\n".join("".join(f"w X I-NP {g}\n" for g, _ in s) for s in rows))
    predicted = [[tag for _, tag in sentence] for sentence in rows]
    lines = [pair for sentence in rows for pair in [*sentence, ()]]
    read = [sentence.tags for sentence in read_conll(path)]
    assert score(read, predicted)["f1"] == pytest.approx(conlleval(lines))


def conlleval(lines) -> float:
    """Return F1 by the rules of the shared task's script, which compares each tag with the last.

    A line has a gold and a predicted tag; an empty one ends a sentence.
    """
    counts = {"correct": 0, "gold": 0, "predicted": 0}
    inside = False  # a name that was right so far
    before = ("O", "O")
    for line in [*lines, ()]:
        now = tuple(line) or ("O", "O")
        ends = [_ends(*pair) for pair in zip(before, now, strict=True)]
        starts = [_starts(*pair) for pair in zip(before, now, strict=True)]
        same_type = _kind(now[0]) == _kind(now[1])
        if inside and all(ends) and _kind(before[0]) == _kind(before[1]):
            counts["correct"] += 1
            inside = False
        elif inside and (ends[0] != ends[1] or not same_type):
            inside = False
        if all(starts) and same_type:
            inside = True
        counts["gold"] += starts[0]
        counts["predicted"] += starts[1]
        before = now
    total = counts["gold"] + counts["predicted"]
    return 200 * counts["correct"] / total if total else 0.0


def _kind(tag: str) -> str:
    return tag[2:]


def _ends(before: str, now: str) -> bool:
    """Return whether a name ends before the tag `now`."""
    return before != "O" and (now[0] in "BO" or _kind(before) != _kind(now))


def _starts(before: str, now: str) -> bool:
    """Return whether a name starts with the tag `now`."""
    return now != "O" and (now[0] == "B" or before == "O" or _kind(before) != _kind(now))
