"""One layer of one direction: the weights of a projected LSTM, state in and state out.

Shapes: B rows, T tokens, D input and output width, H cell width, G = 4H gates, I = D, or G where
the inputs are gate inputs.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from elmore.errors import DataError
from elmore.model.config import LSTMConfig, Precision
from elmore.model.lstm import backends
from elmore.model.lstm.call import GATES, Call, LSTMState, LSTMWeights, StateReset
from elmore.model.lstm.native import PackedLayer
from elmore.model.packed_weights import PackedWeights
from elmore.model.quantize import Int8Rows

_MATRICES = ("input", "recurrent", "projection")


class ProjectedLSTM(nn.Module):
    """Keeps no state between calls: the state is passed in and returned.

    A matrix is a parameter, or `Int8Rows` as a file holds them. `state_dict` has both as dense
    tensors of the same names, and loading one makes every matrix a parameter. `precision` "fast"
    allows less than float32; it changes nothing where gradients are asked for.
    """

    input: nn.Parameter | Int8Rows
    recurrent: nn.Parameter | Int8Rows
    projection: nn.Parameter | Int8Rows | None

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        self.config = config
        self.backend = "auto"  # or a name in backends.BACKENDS
        self.precision: Precision = "exact"
        self._packed = PackedWeights()
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
        """Initialise the weights at Glorot scale; input and recurrent count as one matrix."""
        self.dequantize()
        fan = 2 * self.config.output_dim + len(GATES) * self.config.cell_dim
        bound = (6 / fan) ** 0.5
        for weight in (self.input, self.recurrent):
            assert isinstance(weight, nn.Parameter)
            nn.init.uniform_(weight, -bound, bound)
        nn.init.zeros_(self.bias)
        if isinstance(self.projection, nn.Parameter):
            nn.init.xavier_uniform_(self.projection)

    @property
    def weights(self) -> LSTMWeights:
        """The weights, as backends take them."""
        return LSTMWeights(self.input, self.recurrent, self.bias, self.projection)

    def quantize(self, name: str, rows: Int8Rows) -> None:
        """Hold the matrix of that name as int8 rows; it is then no parameter.

        Raises:
            DataError: The shape is that of another matrix.
        """
        if name not in _MATRICES or rows.shape != getattr(self, name).shape:
            raise DataError(f"an LSTM layer has no matrix {name} of shape {tuple(rows.shape)}")
        delattr(self, name)
        setattr(self, name, rows)

    def dequantize(self) -> None:
        """Make every matrix a parameter of floats, so that it can be trained."""
        for name in _MATRICES:
            weight = getattr(self, name)
            if isinstance(weight, Int8Rows):
                delattr(self, name)
                setattr(self, name, nn.Parameter(weight.dense(), requires_grad=False))

    def project_inputs(self, inputs: Float[Tensor, "B T D"]) -> Float[Tensor, "B T G"]:
        """Return the gate inputs W_x x: the part that does not depend on the state."""
        return backends.project_inputs(
            inputs, self.weights, self._packed, self.precision, self.backend
        )

    def pack(self) -> PackedLayer | None:
        """Return the weights for a `NativeStack`, or None where native code does not run them."""
        return backends.pack_weights(self.weights, self._packed, self.precision, self.backend)

    def forward(
        self,
        inputs: Float[Tensor, "B T I"],
        mask: Shaped[Tensor, "B T"],
        state: LSTMState,
        reset: StateReset | None = None,
        *,
        projected: bool = False,
    ) -> tuple[Float[Tensor, "B T D"], LSTMState]:
        """Run each row from left to right; with `projected` the inputs are gate inputs.

        Raises:
            DataError: Shapes, types or devices do not fit, or a mask holds other numbers than 0
                and 1.
        """
        call = Call.create(
            inputs,
            mask,
            state,
            self.weights,
            reset,
            projected=projected,
            forget_bias=self.config.forget_bias,
            cell_clip=self.config.cell_clip,
            output_clip=self.config.output_clip,
            precision=self.precision,
            packed=self._packed,
        )
        return backends.run(call, self.backend)

    def _apply(self, fn: Callable, recurse: bool = True) -> "ProjectedLSTM":
        self._packed.clear()
        return super()._apply(fn, recurse)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        *args: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        self.dequantize()  # a state dict has dense tensors
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
