"""One layer of one direction: the weights of a projected LSTM, state in and state out.

Shapes: B sentences, T tokens, D input and output width, H cell width,
G = 4H gates, I = D, or G where inputs are driven.
"""

from types import ModuleType

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from elmore.model.config import LSTMConfig
from elmore.model.lstm import eager, in_c, reference, training
from elmore.model.lstm.reference import GATES, LSTMState, LSTMWeights, StateReset
from elmore.model.padding import as_bool, check_shape

BACKENDS = {"reference": reference, "training": training, "eager": eager, "in_c": in_c}


class ProjectedLSTM(nn.Module):
    """Nothing is remembered between calls: what to start from is given, what is left comes back."""

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        self.config = config
        self.kernel = "auto"  # or a name in BACKENDS
        num_rows = len(GATES) * config.cell_dim
        self.input = nn.Parameter(torch.empty(num_rows, config.output_dim))
        self.recurrent = nn.Parameter(torch.empty(num_rows, config.output_dim))
        self.bias = nn.Parameter(torch.empty(num_rows))
        self.projection = (
            nn.Parameter(torch.empty(config.output_dim, config.cell_dim))
            if config.projection
            else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights at Glorot scale; input and recurrent rows count as one matrix."""
        fan = 2 * self.config.output_dim + len(GATES) * self.config.cell_dim
        bound = (6 / fan) ** 0.5
        for weight in (self.input, self.recurrent):
            nn.init.uniform_(weight, -bound, bound)
        nn.init.zeros_(self.bias)
        if self.projection is not None:
            nn.init.xavier_uniform_(self.projection)

    @property
    def _weights(self) -> LSTMWeights:
        return LSTMWeights(self.input, self.recurrent, self.bias, self.projection)

    def project_inputs(self, inputs: Float[Tensor, "B T D"]) -> Float[Tensor, "B T G"]:
        """Give what the inputs alone say to the gates: the part that needs no state."""
        return reference.project_inputs(inputs, self.input)

    def forward(
        self,
        inputs: Float[Tensor, "B T I"],
        mask: Shaped[Tensor, "B T"],
        state: LSTMState,
        resets: StateReset | None = None,
        *,
        projected: bool = False,
    ) -> tuple[Float[Tensor, "B T D"], LSTMState]:
        """Read each sentence from left to right; the inputs may be what `drive` made of them.

        Raises:
            DataError: A mask is not (B, T), or holds other numbers than 0 and 1.
        """
        check_shape(mask, inputs)
        if resets is not None:
            check_shape(resets.mask, inputs, "a mask of resets")
            resets = resets._replace(mask=as_bool(resets.mask))
        return self._read(inputs, as_bool(mask), state, resets, projected=projected)

    def _read(
        self,
        inputs: Float[Tensor, "B T I"],
        mask: Bool[Tensor, "B T"],
        state: LSTMState,
        resets: StateReset | None,
        *,
        projected: bool,
    ) -> tuple[Float[Tensor, "B T D"], LSTMState]:
        """Run the recurrence with this layer's kernel."""
        weights = self._weights._replace(input=None) if projected else self._weights
        kernel = BACKENDS.get(self.kernel) or _quickest(inputs, *state, *weights)
        return kernel.run(
            inputs,
            mask,
            state,
            weights,
            forget_bias=self.config.forget_bias,
            cell_clip=self.config.cell_clip,
            output_clip=self.config.output_clip,
            resets=resets,
        )


def _quickest(*tensors: Tensor | None) -> ModuleType:
    """Choose by hand where a GPU learns, and in place where a CPU does not; else the definition.

    In place is quicker in C, where that is to be had.
    """
    learns = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    if any(t is not None and t.is_cuda for t in tensors):
        return training if learns else reference
    if learns or torch.is_autocast_enabled("cpu"):
        return reference
    single = all(t is None or t.dtype == torch.float for t in tensors)
    return in_c if single and in_c.available() else eager
