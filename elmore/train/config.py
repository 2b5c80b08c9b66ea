"""Training settings. The defaults suit a model trained today; `original.toml` has the paper's."""

from dataclasses import dataclass
from typing import Literal

from elmore.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of the optimizer, the schedule, checkpoints and logs."""

    epochs: float = 10.0
    """Passes over the training data."""
    steps: int | None = None
    """Total number of updates; overrides `epochs`."""
    grad_accum_steps: int = 1
    """Batches per update. The gradient equals that of one large batch, whatever their sizes."""

    optimizer: Literal["adamw", "adagrad", "muon"] = "adamw"
    """`muon`: orthogonal updates for the matrices between layers, AdamW for the rest."""
    lr: float = 1e-3
    """Highest learning rate."""
    betas: tuple[float, float] = (0.9, 0.99)
    """Decay rates of AdamW's moments."""
    weight_decay: float = 0.01
    """Of AdamW and Muon; applied to matrices only."""
    adagrad_init: float = 1.0
    """Initial value of Adagrad's accumulator."""
    schedule: Literal["constant", "cosine", "inverse_sqrt", "plateau"] = "cosine"
    """`plateau`: constant, but halved when the score stops improving."""
    plateau_patience: int = 2
    """With `plateau`: evaluations without improvement before each halving."""
    warmup_steps: int = 100
    """Updates over which the learning rate rises linearly from 0."""
    warmup_fraction: float | None = 0.1
    """The warm-up takes at most this fraction of the run; none: it may take all of it."""
    max_grad_norm: float | None = 1.0
    """Clip the global gradient norm to this value."""
    ema_decay: float | None = None
    """Decay of an exponential moving average of the weights, such as 0.999. The averages are
    evaluated and saved as the best model instead of the weights; none: no average."""
    divergence_factor: float | None = 3.0
    """Stop when the running mean of the loss exceeds its minimum by this factor; none: never."""
    divergence_window: int = 200
    """Updates in that mean; the first quarter of them cannot stop training."""

    precision: Literal["auto", "float32", "bf16", "float64"] = "auto"
    """`auto`: bf16 matrix products with float32 weights on a GPU, float32 elsewhere."""
    deterministic: bool = False
    """Use deterministic algorithms on a GPU too, where torch has them; slower."""
    seed: int = 0

    log_every: int = 20
    """Updates between logs of the loss, each of which waits for the GPU."""
    evaluate_every: int = 1000
    """Updates between evaluations; 0: once per epoch. The last update is always evaluated."""
    save_every: int = 1000
    """Updates between checkpoints; 0: once per epoch. The last update is always saved."""
    keep_checkpoints: int = 2
    """Number of latest checkpoints to keep."""
    patience: int = 0
    """Stop after this many evaluations without improvement; 0: never stop early."""

    def __post_init__(self) -> None:
        for name in (
            *("grad_accum_steps", "log_every", "keep_checkpoints", "divergence_window"),
            "plateau_patience",
        ):
            self._check(name, getattr(self, name) >= 1, "at least 1")
        for name in (
            *("evaluate_every", "save_every", "warmup_steps"),
            *("patience", "seed", "weight_decay"),
        ):
            self._check(name, getattr(self, name) >= 0, "at least 0")
        for name in ("epochs", "steps", "lr", "max_grad_norm", "adagrad_init"):
            value = getattr(self, name)
            self._check(name, value is None or value > 0, "above 0")
        factor = self.divergence_factor
        decay = self.ema_decay
        self._check("ema_decay", decay is None or 0 < decay < 1, "above 0 and below 1, or none")
        fraction = self.warmup_fraction
        self._check(
            "warmup_fraction", fraction is None or 0 <= fraction <= 1, "from 0 to 1, or none"
        )
        self._check("divergence_factor", factor is None or factor > 1, "above 1, or none")
        self._check("seed", self.seed < 2**32, "below 2**32")
        self._check("betas", all(0 <= beta < 1 for beta in self.betas), "at least 0 and below 1")

    def _check(self, name: str, valid: bool, bound: str) -> None:
        if not valid:
            raise ConfigError(f"train.{name} must be {bound}, found {getattr(self, name)}")

    def num_steps(self, batches_per_epoch: int) -> int:
        """Return the total number of updates."""
        return self.steps or max(1, round(self.epochs * batches_per_epoch / self.grad_accum_steps))
