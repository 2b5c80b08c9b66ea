"""A biLSTM-CRF for named entities (Lample et al., 2016; Peters et al., 2018, appendix A)."""

from elmore.tasks.embedding.network import PaddedTokens, Widths
from elmore.tasks.layers.crf import CRF, bio_transitions
from elmore.tasks.tagging import TaggerConfig, TagScores
from elmore.tasks.task import Features, Loss, TaskHead


class NERHead(TaskHead):
    """Predicts valid BIO tags: an I- only follows a B- or I- of its type."""

    unit = "tokens"

    def __init__(self, config: TaggerConfig, widths: Widths, labels: list[str]) -> None:
        super().__init__()
        self.labels = labels
        self.tagger = TagScores(config, widths, len(labels))
        self.crf = CRF(len(labels), bio_transitions(labels))

    def forward(self, embedded: PaddedTokens, features: Features) -> Loss:
        """Return the negative log-likelihood of the gold tags, and the number of tokens."""
        losses = self.crf(self.tagger(embedded), features["tags"], embedded.mask)
        return Loss(losses.sum(), embedded.mask.sum())

    def predict(self, embedded: PaddedTokens, features: Features) -> list[list[str]]:
        """Return the best tag sequence of each sentence."""
        paths = self.crf.decode(self.tagger(embedded), embedded.mask)
        return [[self.labels[label] for label in path] for path in paths]

    def confidences(
        self, embedded: PaddedTokens, features: Features, predictions: list[list[str]]
    ) -> list[list[float]]:
        """Return the probability of each predicted tag, over all tag sequences."""
        probabilities = self.crf.marginals(self.tagger(embedded), embedded.mask).tolist()
        number = {label: i for i, label in enumerate(self.labels)}
        return [
            [row[t][number[tag]] for t, tag in enumerate(tags)]
            for row, tags in zip(probabilities, predictions, strict=True)
        ]
