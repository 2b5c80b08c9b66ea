"""Examples that can be learned by heart, and a recipe small enough to do it."""

from elmore.tasks.srl import metric
from tests.support.toy_tasks import Typed, sentences

SMALL = (
    "model.hidden_dim=16",
    "model.num_layers=2",
    "model.dropout=0.1",
    "model.indicator_dim=8",
    "model.finder_dim=8",
)
SCORES = ("end_to_end_f1",)  # of predicates that had to be found

_ROLES = {"person": "A0", "location": "A1"}

# predicates cannot be typed, so what needs them to be given is not compared
TYPED = (
    Typed(
        "Ann\t-\t(A0*)\t*\nleft\tleave\t(V*)\t*\nto\t-\t(A1*\t*\nrest\trest\t*)\t(V*)\n\nU.S.\t-\n",
        ("Ann left to rest", "U.S."),
        tokenized=True,
        score=lambda gold, found: metric.score_end_to_end([e.frames for e in gold], found),
        compared=lambda found: [
            [(frame["predicate"], frame["tags"]) for frame in frames if frame["found"]]
            for frames in found
        ],
    ),
)


def text(number: int) -> str:
    """Give a file of that many examples, in the columns of CoNLL-2005: who saw or left what."""
    blocks = []
    for rows in sentences(number):
        lines = []
        following = [name for _, name, _ in rows[1:]] + ["O"]
        for (word, name, tag), after in zip(rows, following, strict=True):
            role = "V" if tag == "VBD" else _ROLES.get(name[2:])
            begins = role and not name.startswith("I-")
            ends = role and not after.startswith("I-")
            cell = f"({role}*" * bool(begins) + "*" * (not begins) + ")" * bool(ends)
            lines.append(f"{word}\t{word if tag == 'VBD' else '-'}\t{cell}\n")
        blocks.append("".join(lines))
    return "\n".join(blocks)
