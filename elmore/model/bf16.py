"""The biLM with its matrix products in bf16, for reading alone: what `precision="fast"` runs.

Weights are rounded once, and on a CPU packed the way its units take them. Of everything else only
the factors of a product are rounded; gates, cells, clips and results are in float32, and so is the
encoder of the words, which is the model's own. A GPU gives a product in float32; oneDNN, on a CPU,
rounds it too.

Shapes: B sentences, T tokens, I input width, D output width, G gates; a product is of M rows,
X wide, and gives them Y wide.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from elmore.errors import ConfigError
from elmore.model.bilm import BiLM
from elmore.model.lstm.layer import ProjectedLSTM
from elmore.model.lstm.reference import LSTMState, StateReset, bias_with_forget
from elmore.model.lstm.training import _by_step, _kernels
from elmore.model.token_encoder import TokenEncoder


class BiLMWithLayers(BiLM):
    """The same network with other layers. It does not follow a model that learns."""

    def __init__(
        self,
        model: BiLM,
        layer: Callable[[ProjectedLSTM], ProjectedLSTM],
        tokens: TokenEncoder | None = None,
    ) -> None:
        nn.Module.__init__(self)  # there is nothing to draw
        self.config = model.config
        self.tokens = tokens or model.tokens
        self.dropout = nn.Dropout(0)
        self.forward_layers, self.backward_layers = (
            nn.ModuleList(layer(old) for old in stack if isinstance(old, ProjectedLSTM))
            for stack in model.stacks
        )


class BF16LSTM(ProjectedLSTM):
    """One layer of one direction; it takes and gives what a `ProjectedLSTM` does."""

    def __init__(self, layer: ProjectedLSTM) -> None:
        nn.Module.__init__(self)  # there is nothing to draw
        self.config = layer.config
        self._inputs, self._recurrent = BF16Linear(layer.input), BF16Linear(layer.recurrent)
        self._projection = None if layer.projection is None else BF16Linear(layer.projection)
        self._bias = bias_with_forget(layer.bias.detach().float(), layer.config.forget_bias)

    @torch.no_grad()
    def project_inputs(self, inputs: Float[Tensor, "B T I"]) -> Float[Tensor, "B T G"]:
        """Give what the inputs alone say to the gates."""
        return self._inputs(inputs.flatten(0, 1)).unflatten(0, inputs.shape[:2])

    @torch.no_grad()
    def _read(
        self,
        inputs: Float[Tensor, "B T I"],
        mask: Bool[Tensor, "B T"],
        state: LSTMState,
        resets: StateReset | None,
        *,
        projected: bool,
    ) -> tuple[Float[Tensor, "B T D"], LSTMState]:
        with torch.cuda.device_of(inputs), torch.autocast(inputs.device.type, enabled=False):
            return self._read_driven(
                inputs.float() if projected else self.project_inputs(inputs),
                mask,
                state.float(),
                resets and resets.float(),
            )

    def _read_driven(
        self,
        driven: Float[Tensor, "B T G"],
        mask: Bool[Tensor, "B T"],
        state: LSTMState,
        resets: StateReset | None,
    ) -> tuple[Float[Tensor, "B T D"], LSTMState]:
        kernels = _kernels(driven.device)
        alive = _by_step(mask, beyond=True)
        fresh = torch.zeros_like(alive) if resets is None else _by_step(resets.mask, beyond=False)
        to = LSTMState(*(part.contiguous() for part in (state if resets is None else resets.state)))
        output, cell = (torch.where(fresh[0], *pair) for pair in zip(to, state, strict=True))
        output = output.to(torch.bfloat16)  # nothing but products will read it
        hidden = torch.empty_like(cell, dtype=torch.bfloat16 if self._projection else cell.dtype)
        steps = driven.transpose(0, 1)
        outputs = driven.new_empty(*steps.shape[:2], output.shape[1])
        for step, (said, shown) in enumerate(zip(steps, outputs, strict=True)):
            flags = alive[step], fresh[step + 1]
            gates = self._recurrent(output).add_(said)
            clip = self.config.cell_clip
            kernels.cell_step(gates, self._bias, cell, *flags, to.cell, clip, hidden, cell)
            projected, clip = hidden, None
            if self._projection is not None:
                projected, clip = self._projection(hidden), self.config.output_clip
            kernels.output_step(projected, output, *flags, to.output, clip, shown, output)
        return outputs.transpose(0, 1), LSTMState(output.to(cell.dtype), cell)


class BF16Linear:
    """x -> x W' with both factors in bf16; W is rounded when it is built."""

    def __init__(self, weight: Float[Tensor, "Y X"]) -> None:
        rounded = weight.detach().to(torch.bfloat16)
        found = packed(rounded)
        self._is_packed = found is not None
        self._weight = rounded if found is None else found

    def __call__(self, rows: Float[Tensor, "M X"]) -> Float[Tensor, "M Y"]:
        """Multiply; the result is in float32."""
        if rows.device != self._weight.device:
            raise ConfigError(
                f"these weights were prepared for precision='fast' on {self._weight.device} and "
                f"read on {rows.device}; move the model they were made of, and prepare it again"
            )
        rows = rows.to(torch.bfloat16)
        multiply_ = multiply_packed if self._is_packed else multiply
        return multiply_(rows, self._weight).float()


def multiply(rows: Float[Tensor, "M X"], weight: Float[Tensor, "Y X"]) -> Float[Tensor, "M Y"]:
    """Multiply rows with a weight as it is; a GPU need not round the result."""
    if rows.is_cuda:
        return torch.mm(rows, weight.T, out_dtype=torch.float32)
    return rows @ weight.T


def packed(weight: Float[Tensor, "Y X"]) -> Tensor | None:
    """Lay a weight out once as oneDNN multiplies with it: else it would do so at every step.

    The way there is private to torch, so it may be missing: then nothing is packed.
    """
    if weight.device.type != "cpu":
        return None
    try:
        found = torch.ops.mkldnn._reorder_linear_weight(weight)
        multiply_packed(weight[:1], found)
    except (AttributeError, RuntimeError, TypeError):
        return None
    return found


def multiply_packed(rows: Float[Tensor, "M X"], weight: Tensor) -> Float[Tensor, "M Y"]:
    """Multiply rows with what `packed` gave; the result is in their precision."""
    return torch.ops.mkldnn._linear_pointwise(rows, weight, None, "none", [], "")
