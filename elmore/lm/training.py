"""A language model and a text, as something the engine can train."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

import elmore
from elmore.corpus.shards import Corpus
from elmore.corpus.stream import StreamConfig, Streams
from elmore.lm import perplexity
from elmore.lm.batches import Batch, Room
from elmore.lm.language_model import LanguageModel
from elmore.text.characters import Alphabet
from elmore.text.vocabulary import Vocabulary
from elmore.train.distributed import DistEnv
from elmore.train.prefetch import to_device
from elmore.weights import folder, warm
from elmore.weights.bundle import Bundle, Card

_ROWS = (64, 512)  # of validation text side by side, on a CPU and on a GPU
_LOOKED_AT = 64  # batches, to know how many words one has


@dataclass
class Training:
    """Trains on the text's training split, is judged on its validation split if it has one."""

    module: LanguageModel
    corpus: Corpus
    vocabulary: Vocabulary
    alphabet: Alphabet
    stream: StreamConfig
    seed: int
    dist_env: DistEnv
    card: Card = field(default_factory=Card)
    byte_counts: Sequence[int] | None = None
    """Of the text that the vocabulary was counted on; without, of this one."""

    unit = "tokens"
    metric = "perplexity"
    higher_is_better = False

    def __post_init__(self) -> None:
        rows = self.dist_env.local_rows(self.stream.batch_size)
        tokens = self.corpus.split("train")
        self._streams = Streams(tokens, self.stream, seed=self.seed, rows=rows)
        self.batches_per_epoch = self._streams.steps_per_epoch
        if self.byte_counts is None:
            self.byte_counts = self.corpus.byte_counts.tolist()
        self._batches, self._spelling = perplexity.prepared(
            self.corpus, self.module, self.alphabet, self.vocabulary, self.byte_counts
        )
        self._room: Room | None = None

    def make_batch(self, number: int) -> Batch:
        """Give both directions' next tokens; the negatives are the same on every rank."""
        seeds = [np.random.SeedSequence([self.seed, number, way]) for way in (0, 1)]
        first, second = (int(seed.generate_state(1)[0]) for seed in seeds)
        batch = self._batches.batch(self._streams.window(number), (first, second), self._room)
        ahead, behind = (self.module.softmax.rare(targets.flatten()) for targets in batch.targets)
        return batch._replace(rare=(ahead, behind))

    def record(self) -> None:
        """Give batches one shape from here on, and record the module for it (on a GPU)."""
        numbers = range(0, self.batches_per_epoch, max(1, self.batches_per_epoch // _LOOKED_AT))
        self._room = self._batches.room(self._streams.window(number) for number in numbers)
        device = next(self.module.parameters()).device
        self.module.record(to_device(self.make_batch(0), device))

    @property
    def has_valid(self) -> bool:
        """Whether there is a text to be judged on."""
        return bool(self.corpus.index["splits"]["valid"]["shards"])

    def evaluate(self) -> dict[str, float]:
        """Measure on the validation split, the state set anew at each sentence."""
        if not self.has_valid:
            return {}
        return self.perplexity()._asdict()

    def perplexity(self, merged: torch.Tensor | None = None) -> perplexity.Perplexity:
        """Measure on the validation split; see `perplexity.measure`."""
        return perplexity.measure(
            self.module,
            self._batches,
            self.corpus.split("valid"),
            self._spelling,
            rows=_ROWS[next(self.module.parameters()).device.type == "cuda"],
            dist_env=self.dist_env,
            merged=merged,
        )

    def bundle(self, scores: dict[str, float]) -> Bundle:
        """Give the model as it is now, with what there is to say of it."""
        training = {
            **(self.card.training or {}),
            "scores": scores,
            "corpus": {
                "sha256": self.corpus.index["sha256"],
                "words": {
                    name: split["num_words"] for name, split in self.corpus.index["splits"].items()
                },
                "prepared": self.corpus.index["provenance"],
            },
            "versions": {"elmore": elmore.__version__, "torch": torch.__version__},
        }
        return Bundle(
            self.module.bilm,
            self.alphabet,
            self.vocabulary,
            replace(self.card, training=training),
            softmax=self.module.softmax,
            byte_counts=tuple(self.byte_counts or ()) or None,
        )

    def save(self, destination: Path, scores: dict[str, float]) -> None:
        """Write a model folder."""
        bundle = self.bundle(scores)
        if not bundle.card.name:
            name = destination.absolute().parent.name  # that of the run
            bundle = replace(bundle, card=replace(bundle.card, name=name))
        folder.save(warm.warmed(bundle), destination, overwrite=True)
