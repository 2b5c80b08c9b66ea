"""One layer of one direction: the weights of a projected LSTM, state in and state out.

Shapes: B sentences, T tokens, D input and output width, H cell width.
"""

from types import ModuleType

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from elmore.model.config import LSTMConfig
from elmore.model.lstm_kernels import by_hand, reference
from elmore.model.lstm_kernels.reference import GATES, LSTMState, LSTMWeights, Resets


class ProjectedLSTM(nn.Module):
    """Nothing is remembered between calls: what to start from is given, what is left comes back."""

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        self.config = config
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

    def forward(
        self,
        inputs: Float[Tensor, "B T D"],
        mask: Bool[Tensor, "B T"],
        state: LSTMState,
        resets: Resets | None = None,
    ) -> tuple[Float[Tensor, "B T D"], LSTMState]:
        """Read each sentence from left to right."""
        weights = LSTMWeights(self.input, self.recurrent, self.bias, self.projection)
        return _kernel(inputs, *state, *weights).run(
            inputs,
            mask,
            state,
            weights,
            forget_bias=self.config.forget_bias,
            cell_clip=self.config.cell_clip,
            output_clip=self.config.output_clip,
            resets=resets,
        )


def _kernel(*tensors: Tensor | None) -> ModuleType:
    """Choose by hand where a GPU learns; else the definition, which a CPU learns with as fast."""
    learns = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    on_gpu = any(t is not None and t.is_cuda for t in tensors)
    return by_hand if learns and on_gpu else reference
