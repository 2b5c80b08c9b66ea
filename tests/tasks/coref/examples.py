"""Examples that can be learned by heart, and a recipe small enough to do it."""

from elmore.tasks.coref import conllu
from elmore.tasks.coref.document import Document, Mention
from tests.support.toy_tasks import Typed

SMALL = (
    "train.lr=0.01",
    "train.epochs=100",
    "characters.num_filters=16",
    "characters.embedding_dim=8",
    "model.hidden_dim=16",
    "model.score_dim=16",
    "model.feature_dim=4",
    "model.input_dropout=0",
    "model.dropout=0",
    "model.max_width=3",
    "model.max_antecedents=20",
    "model.mention_loss=1",
)

# words, and the entities at each: 1 and 2 are mentioned again, and the last sentence has neither
_STORIES = (
    "Ann/(1 Lee/1) saw Rome/(2) . She/(1) left it/(2) again . Bo left New York .",
    "Cy/(1 Young/ Jr./1) left New/(2 York/2) . He/(1) saw it/(2) . Bo saw Rome .",
)

_SPOKEN = Document(
    [["Ann", "met", "Mr.", "Lee", "."], ["He", "left", "!", "?"], ["She", "left", "."]],
    ["", "Ann Lee", "Bo"],
    [[Mention(0, 0, 1), Mention(2, 0, 1)], [Mention(0, 2, 4), Mention(1, 0, 1)]],
    "spoken",
)
TYPED = (
    Typed(
        "\n".join(conllu.format_conllu([_SPOKEN])),
        ("Ann met Mr. Lee .\nAnn Lee\tHe left ! ?\nBo\tShe left .",),
        tokenized=True,
    ),
)


def text(number: int) -> str:
    """Give a file of a document for each ten examples that are asked for."""
    lines = []
    for index in range(max(1, number // 10)):
        lines += [f"# newdoc id = story{index}", "# meta::genre = fiction"]
        row = 0
        for item in _STORIES[index % 2].split():
            word, _, entity = item.partition("/")
            row += 1
            note = f"Entity={entity}" if entity else "_"
            lines.append("\t".join([str(row), word, *"_______", note]))
            if word == ".":
                lines.append("")
                row = 0
    return "\n".join(lines) + "\n"


def typed(example: Document) -> str:
    """Write an example as a person types it: a blank line always ends a sentence."""
    return "\n\n".join(map(" ".join, example.sentences))
