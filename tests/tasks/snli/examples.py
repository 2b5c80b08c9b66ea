"""Examples that can be learned by heart, and a recipe small enough to do it."""

from tests.support.toy_tasks import PEOPLE, PLACES, Typed, sentences

SMALL = (
    "model.hidden_dim=24",
    "model.dropout=0",
    "model.attention_dropout=0",
    "batch_size=4",
    "train.lr=0.005",
)
UNUSUAL = ("Ann " * 40 + "\tBo", "Bo\tBo", "Bo\t" + "Ann " * 40)
HEADER = "gold_label\tsentence1\tsentence2\n"

_PAIRS = (
    "The dog 's tail .\tIt 's \"red\" .",
    "The dog's tail.\tThe dogs ' tail (red).",
    "I do n't .\tI don't.",
)
_LABELS = ("contradiction", "entailment", "neutral")
_FILE = "".join(f"{label}\t{pair}\n" for label, pair in zip(_LABELS, _PAIRS, strict=True))
TYPED = (
    Typed(HEADER + _FILE, _PAIRS),
    Typed(HEADER + _FILE, _PAIRS, settings=("data.tokenized=true",)),  # of typed ones, too
)


def text(number: int) -> str:
    """Give a file of that many examples: less of the same, another place, or more of it."""
    lines = [HEADER]
    for i, rows in enumerate(sentences(number)):
        premise = " ".join(word for word, _, _ in rows)
        person, here, there = PEOPLE[i % 3], PLACES[i // 3 % 2], PLACES[1 - i // 3 % 2]
        label, hypothesis = (
            ("entailment", f"{person} saw ."),
            ("contradiction", premise.replace(here, there)),
            ("neutral", f"{person} left {here} again ."),
        )[(i + i // 3) % 3]
        lines.append(f"{label}\t{premise}\t{hypothesis}\n")
    return "".join(lines)


def typed(pair) -> str:
    """Write a pair as a person types it."""
    return f"{' '.join(pair.premise)}\t{' '.join(pair.hypothesis)}"
