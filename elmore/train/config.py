"""How a model is trained, as plain values. Defaults are of today; the paper's are a recipe."""

from dataclasses import dataclass
from typing import Literal

from elmore.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything about the updates, nothing about the model."""

    epochs: float = 10.0
    """Passes over the training data."""
    steps: int | None = None
    """Updates in all; said, it counts instead of `epochs`."""
    accumulate: int = 1
    """Batches to one update, which equals that of one large batch, however uneven they are."""

    optimizer: Literal["adamw", "adagrad", "muon"] = "adamw"
    """`muon`: orthogonal updates for the matrices between layers, AdamW for the rest."""
    rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.99)
    """AdamW's memory of the gradient and of its square."""
    weight_decay: float = 0.01
    """AdamW's and Muon's, on matrices alone."""
    initial_accumulator: float = 1.0
    """What Adagrad's sum of squares starts from."""
    schedule: Literal["constant", "cosine", "inverse_sqrt"] = "cosine"
    warmup: int = 100
    """Updates over which the rate rises from nothing."""
    clip: float | None = 1.0
    """Bound on the norm of all gradients together."""
    divergence_factor: float | None = 3.0
    """Stop when the running mean of the loss exceeds its best by this factor; none: never."""
    divergence_window: int = 200
    """Updates over which that mean is taken; the first quarter of them is not judged."""

    precision: Literal["auto", "float32", "bf16", "float64"] = "auto"
    """`auto`: bf16 products with float32 weights on a GPU, float32 elsewhere."""
    deterministic: bool = False
    """The same bits every time on a GPU too, where torch can; slower."""
    seed: int = 0

    log_every: int = 20
    """Updates between two looks at the loss; a GPU has to be waited for."""
    evaluate_every: int = 1000
    """Updates between two evaluations, 0 for once an epoch; there is one at the end anyway."""
    save_every: int = 1000
    """Updates between two checkpoints, 0 for once an epoch; there is one at the end anyway."""
    keep: int = 2
    """Checkpoints that stay."""
    patience: int = 0
    """Evaluations without a better score before training stops; 0: it never stops early."""

    def __post_init__(self) -> None:
        least = {"accumulate": 1, "log_every": 1, "evaluate_every": 0, "save_every": 0, "keep": 1}
        least |= {"divergence_window": 1, "warmup": 0, "patience": 0, "seed": 0, "weight_decay": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ConfigError(
                    f"train.{name} must be at least {bound}, found {getattr(self, name)}"
                )
        for name in ("epochs", "steps", "rate", "clip", "initial_accumulator"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"train.{name} must be above 0, found {value}")
        if self.divergence_factor is not None and self.divergence_factor <= 1:
            raise ConfigError(
                f"train.divergence_factor must be above 1, or none, found {self.divergence_factor}"
            )
        if self.seed >= 2**32:
            raise ConfigError(f"train.seed must be below 2**32, found {self.seed}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"train.betas must be at least 0 and below 1, found {self.betas}")

    def num_steps(self, batches_per_epoch: int) -> int:
        """Count the updates in all."""
        return self.steps or max(1, round(self.epochs * batches_per_epoch / self.accumulate))
