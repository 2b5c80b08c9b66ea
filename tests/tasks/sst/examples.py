"""Examples that can be learned by heart, and a recipe small enough to do it."""

from tests.support.toy_tasks import Typed, sentences

SMALL = (
    "model.hidden_dim=16",
    "model.maxout_dims=[16]",
    "model.maxout_dropouts=[0]",
    "model.pool_size=2",
    "model.dropout=0.1",
    "model.dense_dropout=0",
    "model.integrator_dropout=0",
    "batch_size=4",
    "train.lr=0.01",
)
UNUSUAL = ("Ann " * 40, "Bo")

_FILE = "(3 (2 It) (4 (2 's) (4 lovely)))\n(1 (2 -LRB-) (1 (2 and\\/or) (2 -RRB-)))\n"
TYPED = (Typed(_FILE, ("It 's lovely", "-LRB- and\\/or -RRB-"), tokenized=True),)


def text(number: int) -> str:
    """Give a file of that many examples: person and place decide what is thought of it."""
    trees = []
    for i, rows in enumerate(sentences(number)):
        label = i % 3 + 2 * (i // 3 % 2)
        trees.append(f"({label} {' '.join(f'({len(word) % 5} {word})' for word, _, _ in rows)})\n")
    return "".join(trees)
