"""Examples that can be learned by heart, and a recipe small enough to do it."""

from tests.support.toy_tasks import Typed, sentences

SMALL = (
    "characters.num_filters=16",
    "characters.embedding_dim=8",
    "model.hidden_dim=16",
    "model.num_layers=1",
    "model.dropout=0.1",
)

_ROW = "{}\t{}\t_\t_\t{}\t_\t_\t_\t_\t_\n"
_FILE = (
    *(_ROW.format(1, "Ann", "NNP"), _ROW.format(2, "saw", "VBD"), "\n"),
    *(_ROW.format(1, "New York", "NNP"), _ROW.format(2, "1\u00a0000", "CD")),
)
TYPED = (Typed("".join(_FILE), ("Ann saw", "New York\t1\u00a0000"), tokenized=True),)


def text(number: int) -> str:
    """Give a file of that many examples."""
    blocks = [
        "".join(
            "\t".join([str(i), word, "_", "_", tag, "_", "_", "_", "_", "_"]) + "\n"
            for i, (word, _, tag) in enumerate(rows, start=1)
        )
        for rows in sentences(number)
    ]
    return "\n".join(blocks)
