"""A biLSTM that classifies each token independently."""

from torch.nn import functional

from elmore.tasks.embedding.network import PaddedTokens, Widths
from elmore.tasks.tagging import TaggerConfig, TagScores
from elmore.tasks.task import Features, Loss, TaskHead


class POSHead(TaskHead):
    """Predicts the most likely tag of each token."""

    unit = "tokens"

    def __init__(self, config: TaggerConfig, widths: Widths, labels: list[str]) -> None:
        super().__init__()
        self.labels = labels
        self.tagger = TagScores(config, widths, len(labels))

    def forward(self, embedded: PaddedTokens, features: Features) -> Loss:
        """Return the cross-entropy of the gold tags."""
        mask = embedded.mask
        scores = self.tagger(embedded)[mask]
        total = functional.cross_entropy(scores, features["tags"][mask], reduction="sum")
        return Loss(total, mask.sum())

    def predict(self, embedded: PaddedTokens, features: Features) -> list[list[str]]:
        """Return the tags of each sentence."""
        best = self.tagger(embedded).argmax(dim=-1).tolist()
        lengths = embedded.mask.sum(dim=1).tolist()
        rows = zip(best, lengths, strict=True)
        return [[self.labels[label] for label in row[:length]] for row, length in rows]

    def confidences(
        self, embedded: PaddedTokens, features: Features, predictions: list[list[str]]
    ) -> list[list[float]]:
        """Return the probability of each predicted tag."""
        highest = self.tagger(embedded).softmax(dim=-1).max(dim=-1).values.tolist()
        return [row[: len(tags)] for row, tags in zip(highest, predictions, strict=True)]
