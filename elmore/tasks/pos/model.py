"""A biLSTM that tags each token by itself."""

from torch.nn import functional

from elmore.tasks.embedding.network import Embedded, Widths
from elmore.tasks.tagging import TaggerConfig, TagScores
from elmore.tasks.task import Features, Loss, TaskModel


class POSModel(TaskModel):
    """The likeliest tag of each token, whatever its neighbours get."""

    unit = "tokens"

    def __init__(self, config: TaggerConfig, widths: Widths, labels: list[str]) -> None:
        super().__init__()
        self.names = labels
        self.tagger = TagScores(config, widths, len(labels))

    def forward(self, embedded: Embedded, features: Features) -> Loss:
        """Give minus the log-probability of the tags."""
        inside = embedded.mask
        scores = self.tagger(embedded)[inside]
        total = functional.cross_entropy(scores, features["tags"][inside], reduction="sum")
        return Loss(total, inside.sum())

    def predict(self, embedded: Embedded, features: Features) -> list[list[str]]:
        """Give the tags of each sentence."""
        best = self.tagger(embedded).argmax(dim=-1).tolist()
        lengths = embedded.mask.sum(dim=1).tolist()
        rows = zip(best, lengths, strict=True)
        return [[self.names[label] for label in row[:length]] for row, length in rows]
