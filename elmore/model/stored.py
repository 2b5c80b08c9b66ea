"""The biLM whose weights are bytes and a scale for each row, for reading alone.

A file may hold them so. Nothing is rounded here: they are the weights themselves, written shorter.
Where few sentences are read on a CPU, a step takes as long as memory takes to bring the weights.

Shapes: M rows of a weight, K wide.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from elmore.model.bilm import BiLM
from elmore.model.fast import FastBiLM
from elmore.model.lstm import ProjectedLSTM
from elmore.model.lstm_kernels import few_rows, in_c
from elmore.model.lstm_kernels.few_rows import Bytes, LSTMBytes

_MOST = 127
_AT_ONCE = 256  # rows: what is in between takes little memory


def with_bytes(model: BiLM) -> BiLM:
    """Give what reads few sentences quicker, if all layers are bytes; else the model as it is."""
    if not in_c.available() or model.config.lstm.output_dim > few_rows.WIDEST:
        return model
    layers = [layer for stack in model.stacks for layer in stack]
    found = {layer: stored(layer) for layer in layers if type(layer) is ProjectedLSTM}
    if len(found) < len(layers) or None in found.values():
        return model
    return FastBiLM(model, lambda layer: StoredLSTM(layer, found[layer]))


class StoredLSTM(ProjectedLSTM):
    """One layer of one direction; it does not follow one that learns."""

    def __init__(self, layer: ProjectedLSTM, found: LSTMBytes | None) -> None:
        nn.Module.__init__(self)  # there is nothing to draw
        self.config, self.kernel = layer.config, layer.kernel
        self.input, self.recurrent = layer.input, layer.recurrent
        self.bias, self.projection = layer.bias, layer.projection
        self.stored = found


def stored(layer: ProjectedLSTM) -> LSTMBytes | None:
    """Give the matrices of a layer as bytes; None where that would not be all of them."""
    matrices = [layer.input, layer.recurrent]
    matrices += [] if layer.projection is None else [layer.projection]
    found = [as_bytes(matrix.detach()) for matrix in matrices]
    whole = [matrix for matrix in found if matrix is not None]
    return LSTMBytes(*whole, *[None] * (3 - len(whole))) if len(whole) == len(found) else None


def as_bytes(weight: Float[Tensor, "M K"]) -> Bytes | None:
    """Find numbers from -127 to 127 and scales that give exactly these rows."""
    if not weight.is_cpu or weight.dtype != torch.float or not weight.numel():
        return None
    found = Bytes(torch.empty_like(weight, dtype=torch.int8), weight.new_empty(len(weight)))
    parts = (part.split(_AT_ONCE) for part in (weight, *found))
    for rows, numbers, scales in zip(*parts, strict=True):
        largest = rows.abs().amax(dim=1)
        scales.copy_(torch.where(largest == 0, 1.0, largest / _MOST))
        numbers.copy_((rows / scales[:, None]).round())
        if not torch.equal(numbers * scales[:, None], rows):
            return None
    return found
