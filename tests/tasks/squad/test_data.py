import json
import logging
import lzma
import os
from pathlib import Path

import pytest

from elmore.errors import DataError
from elmore.tasks.squad.data import read_squad
from tests.support.sweeps import pick

CONTEXT = "Ann Lee left Rome in 1999. She never came back."
GOOD = {
    "id": "q1",
    "question": "Who left?",
    "answers": [{"text": "Ann Lee", "answer_start": 0}, {"text": "Ann", "answer_start": 0}],
}
LINE = {"context": CONTEXT, "question": "When?", "answer": "1999", "answer_start": 21}


def squad(*asked, context=CONTEXT) -> str:
    paragraphs = [{"context": context, "qas": list(asked)}]
    return json.dumps({"data": [{"title": "Ann", "paragraphs": paragraphs}]})


def without(table: dict, key: str) -> dict:
    return {name: value for name, value in table.items() if name != key}


def file(tmp_path: Path, text: str, name: str = "questions.json") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_squad_is_read(tmp_path):
    (result,) = read_squad(file(tmp_path, squad(GOOD)))
    assert result.id == "q1"
    assert result.question.words == ["Who", "left", "?"]
    assert result.passage.text == CONTEXT
    assert result.answers == [("Ann Lee", 0, 1), ("Ann", 0, 0)]


@pytest.mark.parametrize("name", ["q.jsonl", "q.json", "q.txt"])
@pytest.mark.parametrize(
    "answers",
    [
        {"answer": "1999", "answer_start": 21},
        {"answers": [{"text": "1999", "answer_start": 21}]},
        {"answers": {"text": ["1999"], "answer_start": [21]}},
    ],
)
def test_lines_are_read_whatever_the_file_is_called(tmp_path, name, answers):
    line = json.dumps({"context": CONTEXT, "question": "When?", **answers})
    result = read_squad(file(tmp_path, f"\n{line}\n\n{line}\n", name))
    assert [question.answers for question in result] == [[("1999", 5, 5)]] * 2
    assert result[0].id is None


UNANSWERABLE = {
    "id": "q2",
    "question": "Who stayed?",
    "answers": [],
    "plausible_answers": [{"text": "Ann Lee", "answer_start": 0}],
    "is_impossible": True,
}


def second(*asked) -> str:
    """Write questions as SQuAD 2.0 does."""
    return json.dumps({"version": "v2.0", **json.loads(squad(*asked))})


def test_unanswerable_questions_of_squad_2_are_left_out_and_counted(tmp_path, caplog):
    answerable = {**GOOD, "is_impossible": False}
    unmarked = {"id": "q3", "question": "Why?", "answers": []}
    path = file(tmp_path, second(answerable, UNANSWERABLE, unmarked))
    (result,) = read_squad(path)
    assert result.id == "q1"
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning == (
        f"{path}: SQuAD 2.0, where 2 of 3 questions have no answer in their passage; these are "
        "left out, and scores are of the others"
    )


def test_a_line_that_is_marked_as_unanswerable_is_left_out(tmp_path, caplog):
    lines = [LINE, {"context": CONTEXT, **UNANSWERABLE}]
    (result,) = read_squad(file(tmp_path, "\n".join(map(json.dumps, lines))))
    assert result.question.text == "When?"
    assert "1 of 2 questions have no answer" in caplog.text


def test_squad_2_without_an_answerable_question_is_refused(tmp_path):
    message = (
        r"questions\.json: SQuAD 2\.0, where none of 1 questions has an answer in its passage;"
    )
    with pytest.raises(DataError, match=message):
        read_squad(file(tmp_path, second(UNANSWERABLE)))


def test_an_answerable_file_of_squad_2_is_read_in_silence(tmp_path, caplog):
    assert len(read_squad(file(tmp_path, second({**GOOD, "is_impossible": False})))) == 1
    assert not caplog.records


def test_a_file_written_over_many_lines_is_read(tmp_path):
    text = json.dumps(json.loads(squad(GOOD)), indent=1)
    assert len(read_squad(file(tmp_path, text))) == 1


@pytest.mark.parametrize("suffix", [".json.xz", ".jsonl.xz"])
def test_a_packed_file_is_read(tmp_path, suffix):
    path = tmp_path / f"questions{suffix}"
    text = squad(GOOD) if suffix == ".json.xz" else json.dumps(LINE)
    path.write_bytes(lzma.compress(text.encode()))
    assert len(read_squad(path)) == 1


def test_a_pattern_names_several_files(tmp_path):
    file(tmp_path, squad(GOOD), "a.json")
    file(tmp_path, json.dumps(LINE), "b.jsonl")
    assert [question.id for question in read_squad(tmp_path / "*.json*")] == ["q1", None]


def test_questions_on_a_passage_share_it(tmp_path):
    one, two = read_squad(file(tmp_path, squad(GOOD, without(GOOD, "id"))))
    assert one.passage is two.passage


def test_an_answer_inside_a_token_is_widened_and_counted(tmp_path, caplog):
    inside = {"question": "?", "answers": [{"text": "om", "answer_start": 14}]}
    with caplog.at_level(logging.INFO, "elmore"):
        _, result = read_squad(file(tmp_path, squad(GOOD, inside)))
    assert result.answers == [("om", 3, 3)]
    assert result.passage.cut(3, 3) == "Rome"
    assert "1 of 3 answers begin or end inside a token" in caplog.text


def test_blanks_around_an_answer_do_not_widen_it(tmp_path, caplog):
    spaced = {"question": "?", "answers": [{"text": " Rome ", "answer_start": 12}]}
    with caplog.at_level(logging.INFO, "elmore"):
        (result,) = read_squad(file(tmp_path, squad(spaced)))
    assert result.answers == [(" Rome ", 3, 3)]
    assert not caplog.records


def answered(**answer) -> str:
    return squad({**GOOD, "answers": [answer]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            answered(text="Rome", answer_start=12),
            r"questions\.json:1: question 'q1': the passage has ' Rom' at its character 12, "
            "expected the answer 'Rome'$",
        ),
        (answered(text="back.", answer_start=-5), "the passage has '' at its character -5"),
        (answered(text="x", answer_start=10**6), "the passage has '' at its character 1000000"),
        (
            answered(text="", answer_start=3),
            "question 'q1': the answer at character 3 is empty, expected words of the passage$",
        ),
        (answered(text=" ", answer_start=3), "question 'q1': the answer at character 3 is empty"),
        (
            answered(text="Ann"),
            "json:1: question 'q1': missing key 'answer_start', expected a whole number under it; "
            "found keys: 'text'$",
        ),
        (answered(text="Ann", answer_start="0"), "answer_start: expected a whole number.*'0'"),
        (answered(text="Ann", answer_start=True), "answer_start: expected a whole number.*'True'"),
        (answered(text=7, answer_start=0), "text: expected a text, found '7'"),
        (squad({**GOOD, "answers": []}), "question 'q1': no answers; expected at least one"),
        (squad({**GOOD, "is_impossible": 0}), "is_impossible: expected true or false, found '0'"),
        (squad({**GOOD, "answers": "Ann"}), "answers: expected a list, found 'Ann'"),
        (squad({**GOOD, "answers": ["Ann"]}), "expected an object with 'text', found 'Ann'"),
        (squad(without(GOOD, "answers")), "question 'q1': missing key 'answer'"),
        (squad({**GOOD, "id": 7}), r"data\[0\].paragraphs\[0\].qas\[0\]: id: expected a text"),
        (squad(without(GOOD, "question")), "questions.json:1: question 'q1': missing key 'quest"),
        (squad({**GOOD, "question": " \n"}), "json:1: question 'q1': the question is empty, exp"),
        (squad(GOOD, context=""), r"data\[0\].paragraphs\[0\]: the context is empty, expected wor"),
        (squad(GOOD, context=None), "context: expected a text, found 'None'"),
        (
            squad(GOOD, GOOD).replace('"id"', '\n"id"'),
            "questions.json:3: question 'q1' has the id of another, .*questions.json:2: question "
            "'q1'; expected an id once",
        ),
        (
            json.dumps(LINE | {"id": "a"}) + "\n\n" + json.dumps(LINE | {"id": "a"}),
            "questions.json:3: question 'a' has the id of another, .*questions.json:1: ",
        ),
        (squad("Who?"), r"qas\[0\]: expected an object with 'question', found 'Who\?'"),
        (squad(), "questions.json: no question found"),
        ('{"data": {}}', "data: expected a list, found '{}'"),
        ('{"data": [{"title": "x"}]}', r"data\[0\]: missing key 'paragraphs'"),
        ("[1]", "expected an object with 'data', found '\\[1\\]'"),
        ("{}", "questions.json:1: missing key 'context', .*found keys: none$"),
        (
            '{"data": [\n  1,\n  x]}',
            r"questions.json:3: not readable as JSON \(Expecting value at column 3\); expected the "
            "whole of SQuAD's JSON, or an object a line$",
        ),
        ("[" * 10**5, "questions.json:1: not readable as JSON .*expected the whole of SQuAD's"),
        ('{"version": 1}', "questions.json:1: missing key 'context'"),
        ("", "questions.json: no question found"),
        (json.dumps(LINE) + "\n{", "questions.json:2: not readable as JSON .* at column 2"),
        (json.dumps(LINE) + "\n[]", "questions.json:2: expected an object with 'context'"),
        (
            json.dumps(LINE | {"id": "a"}) + "\n" + json.dumps(LINE | {"id": "b", "answer": "x"}),
            "questions.json:2: question 'b': the passage has '1' at its character 21",
        ),
        (
            json.dumps(LINE | {"answers": {"text": ["1999"], "answer_start": []}}),
            "questions.json:1: 1 answers and 0 places of answers; expected as many of both",
        ),
    ],
)
def test_invalid_values_are_named(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_squad(file(tmp_path, text))


def test_an_id_of_another_file_is_named(tmp_path):
    for name in "ab":
        file(tmp_path, squad(GOOD), f"{name}.json")
    with pytest.raises(
        DataError, match=r"b\.json:1: question 'q1' has the id of another, .*a\.json:1"
    ):
        read_squad(tmp_path / "?.json")


@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_question_is_found_on_its_line(tmp_path, ascii_only):
    wrong = {**GOOD, "id": "é/2", "answers": [{"text": "Bo", "answer_start": 0}]}
    named = {**GOOD, "id": "é", "question": "é/2"}  # the same text, and no id
    whole = json.loads(squad(GOOD, named, wrong))
    text = json.dumps(whole, indent=1, ensure_ascii=ascii_only)
    written = json.dumps("é/2", ensure_ascii=ascii_only)
    (line,) = [
        number
        for number, row in enumerate(text.splitlines(), start=1)
        if row.strip() == f'"id": {written},'
    ]
    with pytest.raises(
        DataError, match=rf"questions\.json:{line}: question 'é/2': the passage has"
    ):
        read_squad(file(tmp_path, text))


def test_a_question_without_an_id_is_found_by_its_words(tmp_path):
    wrong = {**without(GOOD, "id"), "answers": []}
    text = json.dumps(json.loads(squad(GOOD, wrong)), indent=1)
    lines = enumerate(text.splitlines(), start=1)
    _, line = [number for number, row in lines if '"question"' in row]
    with pytest.raises(DataError, match=rf"questions\.json:{line}: question .*: no answers"):
        read_squad(file(tmp_path, text))


def test_a_question_that_is_not_found_by_its_id_is_named_all_the_same(tmp_path):
    text = squad({**GOOD, "answers": []}).replace('"q1"', r'"\u00711"')  # q1, written otherwise
    with pytest.raises(DataError, match=r"questions\.json: question 'q1': no answers"):
        read_squad(file(tmp_path, text))


def test_a_missing_file_and_a_table_are_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.json: cannot be read"):
        read_squad(tmp_path / "none.json")
    with pytest.raises(DataError, match=r"t\.parquet: expected SQuAD's JSON"):
        read_squad(file(tmp_path, "", "t.parquet"))


@pytest.mark.parametrize(
    ("name", "num_questions", "num_passages", "num_answers", "num_widened"),
    # the numbers of its README, those of "text" and "context" keys, and that of docs/tasks.md
    pick(
        [("squad_train_subset_4000q.json.xz", 4000, 800, 4000, 42)],
        [
            ("dev-v1.1.reconstructed.json.xz", 10570, 2067, 34726, 485),
            ("squad_train_subset_4000q.json.xz", 4000, 800, 4000, 42),
            ("qa_zre_subset.jsonl.xz", 6061, 5507, 6061, 61),
        ],
    ),
)
def test_the_real_files_are_read_whole(
    name, num_questions, num_passages, num_answers, num_widened, caplog
):
    if "ELMORE_DATA" not in os.environ:
        pytest.skip("ELMORE_DATA is not set: SQuAD is not here")
    with caplog.at_level(logging.INFO, "elmore"):
        questions = read_squad(Path(os.environ["ELMORE_DATA"]) / "tasks" / "squad" / name)
    assert f" {num_widened} of {num_answers} answers begin or end inside a token" in caplog.text
    assert len(questions) == num_questions
    assert len({question.passage.text for question in questions}) == num_passages
    assert sum(len(question.answers) for question in questions) == num_answers
    for question in questions:
        for text, first, last in question.answers:
            assert text.strip() in question.passage.cut(first, last)
