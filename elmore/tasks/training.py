"""A solver and its examples, as something the engine can train."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmore.embed.jobs.layer_cache import CachedLayers
from elmore.errors import ConfigError
from elmore.tasks import checkpoint
from elmore.tasks.data import batches
from elmore.tasks.trained_task import Batch, Learner, Solver
from elmore.train.distributed import DistEnv


@dataclass
class Training:
    """Trains on some examples, is judged on others."""

    solver: Solver
    examples: Sequence[Any]
    layers: CachedLayers | None
    valid: Sequence[Any]
    valid_layers: CachedLayers | None
    dist_env: DistEnv

    higher_is_better = True

    def __post_init__(self) -> None:
        size = self.solver.config.batch_size
        self.metric = self.solver.task.metric
        self.unit = self.solver.learner.model.unit
        self.batches_per_epoch = batches.num_batches(len(self.examples), size)
        smallest = len(self.examples) // self.batches_per_epoch
        num_processes = self.dist_env.world_size
        if smallest < num_processes:
            raise ConfigError(
                f"batches of {smallest} examples cannot be shared by {num_processes} processes; "
                "raise batch_size, or start fewer"
            )
        sentences = [self.solver.task.sentences(example) for example in self.examples]
        self._lengths = [max(map(len, found), default=0) for found in sentences]
        self._dealt: tuple[int, list[list[int]]] | None = None

    @property
    def module(self) -> Learner:
        """What is trained."""
        return self.solver.learner

    def make_batch(self, number: int) -> Batch:
        """Give this process's examples of a batch."""
        epoch, place = divmod(number, self.batches_per_epoch)
        dealt = self._dealt
        if dealt is None or dealt[0] != epoch:  # once an epoch; several threads may ask
            config = self.solver.config
            seed = config.train.seed
            found = batches.epoch(self._lengths, config.batch_size, seed=seed, number=epoch)
            self._dealt = dealt = (epoch, found)
        chosen = dealt[1][place][self.dist_env.rank :: self.dist_env.world_size]
        return self.solver.batch([self.examples[i] for i in chosen], self.layers, truth=True)

    def evaluate(self) -> dict[str, float]:
        """Score on the held-out examples."""
        predictions = self.solver.predict(self.valid, self.valid_layers)
        return self.solver.task.score(self.valid, predictions)

    def save(self, destination: Path, scores: dict[str, float]) -> None:
        """Write the solver as it is now."""
        self.solver.scores = scores
        checkpoint.save(self.solver, destination)
