"""Questions whose answers are spans of a passage: SQuAD 1.1 and similar files.

A file is the JSON of SQuAD 1.1 (articles, paragraphs, questions), or JSON lines with one question
each, with `context`, `question` and either `answer` and `answer_start`, or
`answers`. An `id` may be missing. Unanswerable questions
of SQuAD 2.0 are skipped: they have `is_impossible`, or no answers in a file of version 2.
"""

import json
import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from elmore import strict_json
from elmore.errors import DataError
from elmore.tasks.squad.offsets import TextWithOffsets, tokenize_with_offsets
from elmore.text.files import Lines, expand_patterns

_NAMES = {str: "a text", int: "a whole number", list: "a list", bool: "true or false"}

_log = logging.getLogger(__name__)


class Answer(NamedTuple):
    """A gold answer and its span: first and last token."""

    text: str
    first: int
    last: int


@dataclass(frozen=True)
class Question:
    """A question, its passage and the gold answers; none in prediction."""

    id: str | None
    passage: TextWithOffsets
    question: TextWithOffsets
    answers: list[Answer]


@dataclass(frozen=True)
class _QuestionLocation:
    """The position of a question, for messages.

    Parsed JSON has no line numbers, so the line is searched for when a message is written.
    """

    key: str
    """The key that identifies it: `id`, or `question`."""
    value: str
    before: int
    """How many earlier questions of the file have the same value."""
    file: str
    lines: Sequence[str]

    def __str__(self) -> str:
        encodings = {json.dumps(self.value), json.dumps(self.value, ensure_ascii=False)}
        pattern = re.compile(rf'"{self.key}"\s*:\s*({"|".join(map(re.escape, encodings))})')
        numbered = enumerate(self.lines, start=1)
        numbers = [number for number, text in numbered for _ in pattern.findall(text)]
        line = f":{numbers[self.before]}" if self.before < len(numbers) else ""
        return f"{self.file}{line}: question {self.value!r}"


_Location = str | _QuestionLocation


def read_squad(path: str | Path) -> list[Question]:
    """Read the questions of a file, or of all files that a pattern matches."""
    questions: list[Question] = []
    num_unanswerable = 0
    locations: dict[str, _Location] = {}
    for name in expand_patterns([str(path)]):
        for question, where in _questions(name):
            if question is None:
                num_unanswerable += 1
                continue
            if question.id in locations:
                first = locations[question.id]
                raise DataError(f"{where} has the id of another, {first}; expected an id once")
            if question.id is not None:
                locations[question.id] = where
            questions.append(question)
    _report_unanswerable(path, num_unanswerable, len(questions))
    if not questions:
        raise DataError(f"{path}: no question found; expected SQuAD's JSON, or JSON lines")
    widened = sum(_is_wider(q.passage, answer) for q in questions for answer in q.answers)
    if widened:
        _log.info(
            "%s: %d of %d answers begin or end inside a token and are widened to whole ones",
            path,
            widened,
            sum(len(question.answers) for question in questions),
        )
    return questions


def _report_unanswerable(path: str | Path, count: int, num_answerable: int) -> None:
    if count and not num_answerable:
        raise DataError(
            f"{path}: SQuAD 2.0, where none of {count} questions has an answer in its passage; "
            "expected questions that can be answered"
        )
    if count:
        _log.warning(
            "%s: SQuAD 2.0, where %d of %d questions have no answer in their passage; these are "
            "left out, and scores are of the others",
            path,
            count,
            count + num_answerable,
        )


def _is_wider(passage: TextWithOffsets, answer: Answer) -> bool:
    return passage.cut(answer.first, answer.last) != answer.text.strip()


def _questions(name: str) -> Iterator[tuple[Question | None, _Location]]:
    """Yield the questions of a file and their positions; None for an unanswerable one."""
    if name.endswith(".parquet"):
        raise DataError(f"{name}: expected SQuAD's JSON, or JSON lines, found a table")
    lines = [str(line) for line in Lines([name], column=None)]
    if _is_a_question(next((line for line in lines if line.strip()), "")):
        for number, line in enumerate(lines, start=1):
            if line.strip():
                where, record = f"{name}:{number}", _parse_json(line, name, number)
                passage = _tokenize_field(record, "context", where)
                key, value = _identify(record, where)
                location = f"{where}: question {value!r}" if key == "id" else where
                yield _question(record, passage, location), location
    elif lines:
        yield from _read_articles(_parse_json("\n".join(lines), name), name, lines)


def _is_a_question(line: str) -> bool:
    """Return whether a line is a question of JSON lines, not the start of SQuAD's JSON."""
    try:
        value = strict_json.loads(line)
    except ValueError:
        return False
    return isinstance(value, dict) and "data" not in value


def _parse_json(text: str, name: str, line: int = 1) -> Any:  # noqa: ANN401 -- whatever JSON can say
    """Parse JSON that begins at a line of a file."""
    try:
        return strict_json.loads(text)
    except ValueError as error:
        reason = str(error)
        if isinstance(error, json.JSONDecodeError):
            line, reason = line + error.lineno - 1, f"{error.msg} at column {error.colno}"
        raise DataError(
            f"{name}:{line}: not readable as JSON ({reason}); expected the whole of SQuAD's JSON, "
            "or an object a line"
        ) from error


def _read_articles(
    document: object, name: str, lines: Sequence[str]
) -> Iterator[tuple[Question | None, _Location]]:
    may_lack_answers = isinstance(document, dict) and str(document.get("version")).startswith("v2")
    counts: Counter[tuple[str, str]] = Counter()
    for number, article in enumerate(_field(document, "data", list, name)):
        where = f"{name}: data[{number}]"
        for index, paragraph in enumerate(_field(article, "paragraphs", list, where)):
            inside = f"{where}.paragraphs[{index}]"
            passage = _tokenize_field(paragraph, "context", inside)
            for position, record in enumerate(_field(paragraph, "qas", list, inside)):
                within = f"{inside}.qas[{position}]"
                key_value = _identify(record, within)
                location = _QuestionLocation(*key_value, counts[key_value], name, lines)
                question = _question(record, passage, location, may_lack_answers=may_lack_answers)
                yield question, location
                counts.update((key, record[key]) for key in ("id", "question") if record.get(key))


def _identify(record: object, where: str) -> tuple[str, str]:
    key = "id" if isinstance(record, dict) and record.get("id") is not None else "question"
    return key, _field(record, key, str, where)


def _question(
    record: object, passage: TextWithOffsets, where: _Location, *, may_lack_answers: bool = False
) -> Question | None:
    question = _tokenize_field(record, "question", where)
    assert isinstance(record, dict)
    name = None if record.get("id") is None else _field(record, "id", str, where)
    if "is_impossible" in record and _field(record, "is_impossible", bool, where):
        return None
    answer_starts = _answers(record, where)
    if not answer_starts and may_lack_answers:
        return None
    if not answer_starts:
        raise DataError(
            f"{where}: no answers; expected at least one, a span of the passage, or "
            "'is_impossible' as in SQuAD 2.0"
        )
    answers = [_answer(text, start, passage, where) for text, start in answer_starts]
    return Question(name, passage, question, answers)


def _answers(record: dict[str, Any], where: _Location) -> list[tuple[str, int]]:
    """Return the answers of a question and their first characters, in any of the formats."""
    if "answers" not in record:
        return [(_field(record, "answer", str, where), _field(record, "answer_start", int, where))]
    answers = record["answers"]
    if isinstance(answers, dict):  # two lists side by side, as Hugging Face's copies have them
        columns = [_field(answers, key, list, where) for key in ("text", "answer_start")]
        if len(columns[0]) != len(columns[1]):
            raise DataError(
                f"{where}: {len(columns[0])} answers and {len(columns[1])} places of answers; "
                "expected as many of both"
            )
        pairs = zip(*columns, strict=True)
        answers = [{"text": text, "answer_start": start} for text, start in pairs]
        record = {"answers": answers}
    return [
        (_field(answer, "text", str, where), _field(answer, "answer_start", int, where))
        for answer in _field(record, "answers", list, where)
    ]


def _answer(text: str, start: int, passage: TextWithOffsets, where: _Location) -> Answer:
    actual = passage.text[start : start + len(text)] if start >= 0 else ""
    if actual != text:
        raise DataError(
            f"{where}: the passage has {actual[:80]!r} at its character {start}, expected the "
            f"answer {text[:80]!r}"
        )
    if not text.strip():
        raise DataError(
            f"{where}: the answer at character {start} is empty, expected words of the passage"
        )
    return Answer(text, *passage.tokens(start, start + len(text)))


def _tokenize_field(table: object, key: str, where: _Location) -> TextWithOffsets:
    tokens = tokenize_with_offsets(_field(table, key, str, where))
    if not tokens.words:
        raise DataError(f"{where}: the {key} is empty, expected words")
    return tokens


def _field(table: object, key: str, kind: type, where: _Location) -> Any:  # noqa: ANN401 -- a `kind`
    if not isinstance(table, dict):
        raise DataError(f"{where}: expected an object with {key!r}, found {str(table)[:40]!r}")
    if key not in table:
        keys = ", ".join(map(repr, table))[:80] or "none"
        raise DataError(
            f"{where}: missing key {key!r}, expected {_NAMES[kind]} under it; found keys: {keys}"
        )
    if type(table[key]) is not kind:
        raise DataError(f"{where}: {key}: expected {_NAMES[kind]}, found {str(table[key])[:40]!r}")
    return table[key]
