"""Examples that can be learned by heart, and a recipe small enough to do it."""

import json

from tests.support.toy_tasks import Typed, sentences

SMALL = (
    "characters.num_filters=16",
    "characters.embedding_dim=8",
    "model.hidden_dim=16",
    "model.dropout=0.1",
    "train.schedule=constant",
)
UNUSUAL = (
    f"Who saw Rome ?\t{'Ann ' * 900}",  # several windows
    "Who ?\tBo",
    f"{'Who ' * 40}?\tBo left .",
)

_ASKED = (
    ("Who's left?", 'Ann  Lee left "New\u00a0York".\nBo didn\'t.', "Ann  Lee"),
    ("Who did n't ?", "Ann left. Bo did n't .", "Bo"),
)
_LINES = (
    {"context": c, "question": q, "answer": a, "answer_start": c.index(a)} for q, c, a in _ASKED
)
TYPED = (Typed("\n".join(map(json.dumps, _LINES)), tuple(f"{q}\t{c}" for q, c, _ in _ASKED)),)


def typed(question) -> str:
    """Write a question as a person types it."""
    return f"{' '.join(question.question.words)}\t{' '.join(question.passage.words)}"


def text(number: int) -> str:
    """Give a file of that many questions, two to a passage: on the person and on the place."""
    paragraphs = []
    for rows in sentences((number + 1) // 2):
        context, asked = " ".join(word for word, _, _ in rows), []
        for kind, question in (("person", "Who was it ?"), ("location", "Which place was it ?")):
            answer = " ".join(word for word, name, _ in rows if name.endswith(kind))
            answers = [{"text": answer, "answer_start": context.index(answer)}]
            identity = f"{len(paragraphs)}-{kind}"
            asked.append({"id": identity, "question": question, "answers": answers})
        paragraphs.append({"context": context, "qas": asked})
    if number % 2:
        paragraphs[-1]["qas"].pop()
    return json.dumps({"version": "1.1", "data": [{"title": "all", "paragraphs": paragraphs}]})
