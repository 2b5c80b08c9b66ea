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
class _Place:
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
        written = {json.dumps(self.value), json.dumps(self.value, ensure_ascii=False)}
        said = re.compile(rf'"{self.key}"\s*:\s*({"|".join(map(re.escape, written))})')
        numbered = enumerate(self.lines, start=1)
        found = [number for number, text in numbered for _ in said.findall(text)]
        line = f":{found[self.before]}" if self.before < len(found) else ""
        return f"{self.file}{line}: question {self.value!r}"


_Where = str | _Place


def read_squad(path: str | Path) -> list[Question]:
    """Read the questions of a file, or of all files that a pattern matches."""
    found: list[Question] = []
    num_unanswerable = 0
    places: dict[str, _Where] = {}
    for name in expand_patterns([str(path)]):
        for question, where in _questions(name):
            if question is None:
                num_unanswerable += 1
                continue
            if question.id in places:
                first = places[question.id]
                raise DataError(f"{where} has the id of another, {first}; expected an id once")
            if question.id is not None:
                places[question.id] = where
            found.append(question)
    _tell_unanswerable(path, num_unanswerable, len(found))
    if not found:
        raise DataError(f"{path}: no question found; expected SQuAD's JSON, or JSON lines")
    widened = sum(_is_wider(q.passage, answer) for q in found for answer in q.answers)
    if widened:
        _log.info(
            "%s: %d of %d answers begin or end inside a token and are widened to whole ones",
            path,
            widened,
            sum(len(question.answers) for question in found),
        )
    return found


def _tell_unanswerable(path: str | Path, count: int, num_answerable: int) -> None:
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


def _questions(name: str) -> Iterator[tuple[Question | None, _Where]]:
    """Yield the questions of a file and their positions; None for an unanswerable one."""
    if name.endswith(".parquet"):
        raise DataError(f"{name}: expected SQuAD's JSON, or JSON lines, found a table")
    lines = [str(line) for line in Lines([name], column=None)]
    if _is_a_question(next((line for line in lines if line.strip()), "")):
        for number, line in enumerate(lines, start=1):
            if line.strip():
                where, asked = f"{name}:{number}", _parsed(line, name, number)
                passage = _placed(asked, "context", where)
                key, value = _known_by(asked, where)
                named = f"{where}: question {value!r}" if key == "id" else where
                yield _question(asked, passage, named), named
    elif lines:
        yield from _of_articles(_parsed("\n".join(lines), name), name, lines)


def _is_a_question(line: str) -> bool:
    """Return whether a line is a question of JSON lines, not the start of SQuAD's JSON."""
    try:
        found = strict_json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and "data" not in found


def _parsed(text: str, name: str, line: int = 1) -> Any:  # noqa: ANN401 -- whatever JSON can say
    """Parse JSON that begins at a line of a file."""
    try:
        return strict_json.loads(text)
    except ValueError as error:
        found = str(error)
        if isinstance(error, json.JSONDecodeError):
            line, found = line + error.lineno - 1, f"{error.msg} at column {error.colno}"
        raise DataError(
            f"{name}:{line}: not readable as JSON ({found}); expected the whole of SQuAD's JSON, "
            "or an object a line"
        ) from error


def _of_articles(
    whole: object, name: str, lines: Sequence[str]
) -> Iterator[tuple[Question | None, _Where]]:
    may_lack_answers = isinstance(whole, dict) and str(whole.get("version")).startswith("v2")
    seen: Counter[tuple[str, str]] = Counter()
    for number, article in enumerate(_field(whole, "data", list, name)):
        where = f"{name}: data[{number}]"
        for place_in, paragraph in enumerate(_field(article, "paragraphs", list, where)):
            inside = f"{where}.paragraphs[{place_in}]"
            passage = _placed(paragraph, "context", inside)
            for position, asked in enumerate(_field(paragraph, "qas", list, inside)):
                within = f"{inside}.qas[{position}]"
                known = _known_by(asked, within)
                place_of = _Place(*known, seen[known], name, lines)
                question = _question(asked, passage, place_of, may_lack_answers=may_lack_answers)
                yield question, place_of
                seen.update((key, asked[key]) for key in ("id", "question") if asked.get(key))


def _known_by(asked: object, where: str) -> tuple[str, str]:
    key = "id" if isinstance(asked, dict) and asked.get("id") is not None else "question"
    return key, _field(asked, key, str, where)


def _question(
    asked: object, passage: TextWithOffsets, where: _Where, *, may_lack_answers: bool = False
) -> Question | None:
    question = _placed(asked, "question", where)
    assert isinstance(asked, dict)
    name = None if asked.get("id") is None else _field(asked, "id", str, where)
    if "is_impossible" in asked and _field(asked, "is_impossible", bool, where):
        return None
    given = _given(asked, where)
    if not given and may_lack_answers:
        return None
    if not given:
        raise DataError(
            f"{where}: no answers; expected at least one, a stretch of the passage, or "
            "'is_impossible' as in SQuAD 2.0"
        )
    answers = [_answer(text, start, passage, where) for text, start in given]
    return Question(name, passage, question, answers)


def _given(asked: dict[str, Any], where: _Where) -> list[tuple[str, int]]:
    """Return the answers of a question and their first characters, in any of the formats."""
    if "answers" not in asked:
        return [(_field(asked, "answer", str, where), _field(asked, "answer_start", int, where))]
    answers = asked["answers"]
    if isinstance(answers, dict):  # two lists side by side, as Hugging Face's copies have them
        columns = [_field(answers, key, list, where) for key in ("text", "answer_start")]
        if len(columns[0]) != len(columns[1]):
            raise DataError(
                f"{where}: {len(columns[0])} answers and {len(columns[1])} places of answers; "
                "expected as many of both"
            )
        pairs = zip(*columns, strict=True)
        answers = [{"text": text, "answer_start": start} for text, start in pairs]
        asked = {"answers": answers}
    return [
        (_field(answer, "text", str, where), _field(answer, "answer_start", int, where))
        for answer in _field(asked, "answers", list, where)
    ]


def _answer(text: str, start: int, passage: TextWithOffsets, where: _Where) -> Answer:
    found = passage.text[start : start + len(text)] if start >= 0 else ""
    if found != text:
        raise DataError(
            f"{where}: the passage has {found[:80]!r} at its character {start}, expected the "
            f"answer {text[:80]!r}"
        )
    if not text.strip():
        raise DataError(
            f"{where}: the answer at character {start} is empty, expected words of the passage"
        )
    return Answer(text, *passage.tokens(start, start + len(text)))


def _placed(table: object, key: str, where: _Where) -> TextWithOffsets:
    found = tokenize_with_offsets(_field(table, key, str, where))
    if not found.words:
        raise DataError(f"{where}: the {key} is empty, expected words")
    return found


def _field(table: object, key: str, kind: type, where: _Where) -> Any:  # noqa: ANN401 -- a `kind`
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
