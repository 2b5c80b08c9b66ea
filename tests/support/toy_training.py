"""The smallest thing the engine can train: a line through points, with a state it carries on.

Used by tests/train and fuzz/trained.
"""

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from elmore.train.loop import StepOutput


class Line(nn.Module):
    """loss = sum over rows of (a . x + b + carried / 10 - y)^2; what is carried decays."""

    def __init__(self, dim: int = 3, dropout: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, dim, dtype=torch.float64))
        self.bias = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, batch: tuple[Tensor, Tensor], carried: dict[str, Tensor] | None
    ) -> StepOutput:
        inputs, targets = batch
        memory = inputs.new_zeros(len(inputs)) if carried is None else carried["memory"]
        result = self.dropout(inputs) @ self.weight + self.bias + memory / 10
        loss = (result - targets).square().sum()
        memory = memory / 2 + result.detach()
        return StepOutput(loss, torch.tensor(float(len(inputs))), {"memory": memory})


class Forgetful(Line):
    """A line that carries nothing, so that each batch may have its own number of rows."""

    def forward(
        self, batch: tuple[Tensor, Tensor], carried: dict[str, Tensor] | None
    ) -> StepOutput:
        return super().forward(batch, None)._replace(state={})


@dataclass
class Toy:
    """Batches are draws seeded by their number; the score falls with `scores`, if any."""

    module: nn.Module = field(default_factory=Line)
    rows: int = 4
    scores: list[float] = field(default_factory=list)
    """What each evaluation in turn will find; none left: the last."""
    higher_is_better: bool = False
    batches_per_epoch: int = 10
    unit: str = "rows"
    metric: str = "score"
    saved: list[dict[str, float]] = field(default_factory=list)
    evaluated: int = 0

    def make_batch(self, number: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(number)
        inputs = torch.randn(self.rows, 3, generator=generator, dtype=torch.float64)
        return inputs, inputs @ torch.tensor([0.5, -2.0, 1.0], dtype=torch.float64) + 1

    def evaluate(self) -> dict[str, float]:
        self.evaluated += 1
        if not self.scores:
            return {}
        return {"score": self.scores[min(self.evaluated, len(self.scores)) - 1]}

    def save(self, destination: Path, scores: dict[str, float]) -> None:
        self.saved.append(scores)
        destination.mkdir(exist_ok=True)
        (destination / "weight.txt").write_text(str(self.module.weight.tolist()))
