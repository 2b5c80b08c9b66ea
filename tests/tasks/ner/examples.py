"""Examples that can be learned by heart, and a recipe small enough to do it."""

from tests.support.toy_tasks import Typed, sentences

SMALL = (
    "characters.num_filters=16",
    "characters.embedding_dim=8",
    "model.hidden_dim=16",
    "model.num_layers=1",
    "model.dropout=0.1",
)

# a no-break space may be part of a token
_FILE = "Ann\tB-person\nLee\tI-person\nsaw\tO\nNew\u00a0York\tB-location\n\ncan't\tO\nMr.\tO\n"
TYPED = (Typed(_FILE, ("Ann Lee saw New\u00a0York", "can't Mr."), tokenized=True),)


def text(number: int) -> str:
    """Give a file of that many examples."""
    blocks = ["".join(f"{word}\t{name}\n" for word, name, _ in rows) for rows in sentences(number)]
    return "\n".join(blocks)
