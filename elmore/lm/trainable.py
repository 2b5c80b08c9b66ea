"""A language model and a corpus, as a `Trainable` of the training engine."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

import elmore
from elmore.corpus.shards import Corpus
from elmore.corpus.stream import StreamConfig, TBPTTDataset
from elmore.lm import perplexity
from elmore.lm.batches import Batch, PaddingSizes
from elmore.lm.language_model import LanguageModel
from elmore.text.characters import Alphabet
from elmore.text.vocabulary import Vocabulary
from elmore.train.distributed import DistEnv
from elmore.train.prefetch import to_device
from elmore.weights import folder, warm
from elmore.weights.bundle import Bundle, Card

_EVAL_BATCH_SIZE = {"cpu": 64, "cuda": 512}
_SAMPLED_BATCHES = 64  # from which the fixed shape of batches is chosen


@dataclass
class LMTrainable:
    """Trains on the training split, and evaluates on the validation split if there is one."""

    module: LanguageModel
    corpus: Corpus
    vocabulary: Vocabulary
    alphabet: Alphabet
    stream: StreamConfig
    seed: int
    dist_env: DistEnv
    card: Card = field(default_factory=Card)
    byte_counts: Sequence[int] | None = None
    """Counts of the text that the vocabulary was made from; by default of this corpus."""

    unit = "tokens"
    metric = "perplexity"
    higher_is_better = False

    def __post_init__(self) -> None:
        tokens = self.corpus.split("train")
        self.stream = self.stream.fit_to(tokens.num_tokens, multiple_of=self.dist_env.world_size)
        rows = self.dist_env.local_rows(self.stream.batch_size)
        self._dataset = TBPTTDataset(tokens, self.stream, seed=self.seed, rows=rows)
        self.batches_per_epoch = self._dataset.batches_per_epoch
        if self.byte_counts is None:
            self.byte_counts = self.corpus.byte_counts.tolist()
        self._encoder, self._unknown_word_cost = perplexity.build_encoders(
            self.corpus, self.module, self.alphabet, self.vocabulary, self.byte_counts
        )
        self._padding_sizes: PaddingSizes | None = None

    def make_batch(self, number: int) -> Batch:
        """Return batch `number`; the negative samples are the same on every process."""
        seeds = [np.random.SeedSequence([self.seed, number, direction]) for direction in (0, 1)]
        first, second = (int(seed.generate_state(1)[0]) for seed in seeds)
        batch = self._encoder.encode(
            self._dataset.batch(number), (first, second), self._padding_sizes
        )
        forward, backward = (
            self.module.softmax.rare(targets.flatten()) for targets in batch.targets
        )
        return batch._replace(rare=(forward, backward))

    def capture_cuda_graph(self) -> None:
        """Pad all further batches to one shape, and capture the module's CUDA graph for it."""
        step = max(1, self.batches_per_epoch // _SAMPLED_BATCHES)
        numbers = range(0, self.batches_per_epoch, step)
        sample = (self._dataset.batch(number) for number in numbers)
        self._padding_sizes = self._encoder.padding_sizes(sample)
        device = next(self.module.parameters()).device
        self.module.capture_cuda_graph(to_device(self.make_batch(0), device))

    @property
    def has_valid(self) -> bool:
        """Whether the corpus has a validation split."""
        return bool(self.corpus.index["splits"]["valid"]["shards"])

    def evaluate(self) -> dict[str, float]:
        """Score the validation split, resetting the state at each sentence."""
        return self.perplexity()._asdict() if self.has_valid else {}

    def perplexity(self, merged_ids: torch.Tensor | None = None) -> perplexity.Perplexity:
        """Return the perplexity on the validation split; see `measure_perplexity`."""
        return perplexity.measure_perplexity(
            self.module,
            self._encoder,
            self.corpus.split("valid"),
            self._unknown_word_cost,
            batch_size=_EVAL_BATCH_SIZE[next(self.module.parameters()).device.type],
            dist_env=self.dist_env,
            merged_ids=merged_ids,
        )

    def bundle(self, scores: dict[str, float]) -> Bundle:
        """Return the model as it is now, with its scores and provenance on the card."""
        index = self.corpus.index
        training = {
            **(self.card.training or {}),
            "scores": scores,
            "corpus": {
                "sha256": index["sha256"],
                "words": {name: split["num_words"] for name, split in index["splits"].items()},
                "prepared": index["provenance"],
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
            run_name = destination.absolute().parent.name
            bundle = replace(bundle, card=replace(bundle.card, name=run_name))
        folder.save(warm.add_warm_state(bundle), destination, overwrite=True)
