"""The biLM whose weights are bytes and a scale for each row, for reading alone.

A file may hold them so. Nothing is rounded here: they are the weights themselves, written shorter.
On a CPU a step takes as long as memory takes to bring the weights, up to some dozens of sentences.

Shapes: B sentences, T tokens, D input and output width, G gates, I = D, or G where inputs are
driven; M rows of a weight, X wide.
"""

import torch
from jaxtyping import Bool, Float, Int8
from torch import Tensor, nn

from elmore.model.bf16 import BiLMWithLayers
from elmore.model.bilm import BiLM
from elmore.model.lstm import panels, steps
from elmore.model.lstm.layer import ProjectedLSTM
from elmore.model.lstm.panels import LSTMPanels
from elmore.model.lstm.reference import GATES, LSTMState, StateReset, bias_with_forget

_IN_C = ("auto", "in_c")
_MOST = 127
_AT_ONCE = 256  # rows: what is in between takes little memory


def with_bytes(model: BiLM) -> BiLM:
    """Give what reads quicker what is no bulk, if all layers are bytes; else the model as it is."""
    layers = [layer for stack in model.stacks for layer in stack]
    plain = [one for one in layers if type(one) is ProjectedLSTM and one.bias.is_cpu]
    if len(plain) < len(layers) or not panels.available():
        return model
    found = {}
    for layer in plain:
        whole = stored(layer)
        if whole is None:
            return model
        found[layer] = whole
    return BiLMWithLayers(model, lambda layer: StoredLSTM(layer, found[layer]))


class StoredLSTM(ProjectedLSTM):
    """One layer of one direction; it does not follow one that learns, and nothing learns by it."""

    def __init__(self, layer: ProjectedLSTM, found: LSTMPanels) -> None:
        nn.Module.__init__(self)  # there is nothing to draw
        self.config, self.kernel = layer.config, layer.kernel
        self.input, self.recurrent = layer.input, layer.recurrent
        self.bias, self.projection = layer.bias, layer.projection
        self._stored = found

    def project_inputs(self, inputs: Float[Tensor, "B T D"]) -> Float[Tensor, "B T G"]:
        """Give what the inputs alone say to the gates."""
        if self.kernel not in _IN_C or not steps.is_cpu_float32(inputs):
            return super().project_inputs(inputs)
        rows = inputs.flatten(0, 1)
        found = panels.multiply(self._stored.input, rows, height=len(self._stored.bias))
        return found.unflatten(0, inputs.shape[:2])

    def _read(
        self,
        inputs: Float[Tensor, "B T I"],
        mask: Bool[Tensor, "B T"],
        state: LSTMState,
        resets: StateReset | None,
        *,
        projected: bool,
    ) -> tuple[Float[Tensor, "B T D"], LSTMState]:
        if self.kernel not in _IN_C or not steps.is_readable_by_c(inputs, mask, state, resets):
            return super()._read(inputs, mask, state, resets, projected=projected)
        return panels.run(
            inputs,
            mask,
            state,
            self._stored,
            projected=projected,
            cell_clip=self.config.cell_clip,
            output_clip=self.config.output_clip,
            resets=resets,
        )


def stored(layer: ProjectedLSTM) -> LSTMPanels | None:
    """Give the matrices of a layer as bytes; None where that would not be all of them."""
    matrices = [(layer.input, len(GATES)), (layer.recurrent, len(GATES))]
    matrices += [] if layer.projection is None else [(layer.projection, 1)]
    found = []
    for weight, parts in matrices:
        if (whole := as_bytes(weight.detach())) is None:
            return None
        found.append(panels.in_panels(*whole, parts=parts))
    bias = bias_with_forget(layer.bias.detach(), layer.config.forget_bias)
    return LSTMPanels(found[0], found[1], bias, found[2] if len(found) > 2 else None)


def as_bytes(
    weight: Float[Tensor, "M X"],
) -> tuple[Int8[Tensor, "M X"], Float[Tensor, " M"]] | None:
    """Find numbers and scales that give exactly these rows, the largest number of each 127."""
    if not weight.is_cpu or weight.dtype != torch.float or not weight.numel():
        return None
    found = torch.empty_like(weight, dtype=torch.int8), weight.new_empty(len(weight))
    parts = (part.split(_AT_ONCE) for part in (weight, *found))
    for rows, numbers, scales in zip(*parts, strict=True):
        largest = rows.abs().amax(dim=1)
        scales.copy_(torch.where(largest == 0, 1.0, largest / _MOST))
        numbers.copy_((rows / scales[:, None]).round())
        if not torch.equal(numbers * scales[:, None], rows):
            return None
    return found
