"""A biLSTM-CRF that finds names (Lample et al., 2016; Peters et al., 2018, appendix A)."""

from elmore.tasks.embedding.network import Embedded, Widths
from elmore.tasks.layers.crf import CRF, bio_transitions
from elmore.tasks.tagging import TaggerConfig, TagScores
from elmore.tasks.task import Features, Loss, TaskModel


class NERModel(TaskModel):
    """Tags that make names: an I- never stands where no name of its type is open."""

    unit = "tokens"

    def __init__(self, config: TaggerConfig, widths: Widths, labels: list[str]) -> None:
        super().__init__()
        self.names = labels
        self.tagger = TagScores(config, widths, len(labels))
        self.crf = CRF(len(labels), bio_transitions(labels))

    def forward(self, embedded: Embedded, features: Features) -> Loss:
        """Give minus the log-probability of the tags, which are counted by token."""
        found = self.crf(self.tagger(embedded), features["tags"], embedded.mask)
        return Loss(found.sum(), embedded.mask.sum())

    def predict(self, embedded: Embedded, features: Features) -> list[list[str]]:
        """Give the best tags of each sentence."""
        paths = self.crf.decode(self.tagger(embedded), embedded.mask)
        return [[self.names[label] for label in path] for path in paths]
