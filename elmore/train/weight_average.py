"""An exponential moving average of the weights (Polyak and Juditsky, 1992).

    average = d * average + (1 - d) * weight,   d = min(decay, (1 + t) / (10 + t)),   after update t

The lower factor of the first updates lets the average forget the initial weights, as the
`num_updates` of TensorFlow's moving average does. It depends on the number of the update alone, so
a checkpoint needs the averages and nothing else.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class WeightAverage:
    """The averages of the trainable weights of a module, to evaluate and save instead of them."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        named = module.named_parameters()
        self._weights = {name: weight for name, weight in named if weight.requires_grad}
        self._decay = decay
        self.averages = {name: weight.detach().clone() for name, weight in self._weights.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after update `step`, counted from 1."""
        average = get_ema_multi_avg_fn(min(self._decay, (1 + step) / (10 + step)))
        average([*self.averages.values()], [*self._weights.values()], None)

    def load(self, averages: Mapping[str, Tensor]) -> None:
        """Continue with averages of a checkpoint.

        Raises:
            ValueError: these are not averages of the same weights.
        """
        unmatched = sorted(averages.keys() ^ self.averages.keys())
        if unmatched:
            raise ValueError(f"{unmatched[0]} is not in both the averages and the weights")
        for name, average in self.averages.items():
            if averages[name].shape != average.shape or averages[name].dtype != average.dtype:
                raise ValueError(f"the average of {name} has another shape or type than the weight")
            average.copy_(averages[name])

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Replace the weights by their averages inside, and restore them afterwards."""
        weights = {name: weight.detach().clone() for name, weight in self._weights.items()}
        self._copy_to_weights(self.averages)
        try:
            yield
        finally:
            self._copy_to_weights(weights)

    @torch.no_grad()
    def _copy_to_weights(self, values: Mapping[str, Tensor]) -> None:
        # In place: cuDNN keeps the weights of an LSTM in one block of memory.
        for name, weight in self._weights.items():
            weight.copy_(values[name])
