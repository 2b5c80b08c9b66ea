"""The biLM's layers with their products in whole numbers of a byte, for reading alone on a CPU.

What `precision="fast"` runs where there are no units for bf16 but instructions for dot products of
bytes, as most ARM cores have, and x86 with AVX-512 VNNI: four times as many multiplications at once
as in float32. A weight is rounded once, each of its rows to its own scale, and what it is
multiplied with at every product, each token to its own. Sums are exact; gates, cells and clips are
in float32. The products are in C, which is built when first used: without a compiler there is no
such layer.

Layers keep their weights on the CPU as float32 and bytes, even where their module is moved or
converted. They convert inputs to float32, and refuse inputs on other devices.

Shapes: B sentences, T tokens, I input width, D output width, G gates; a product is of X wide
columns, M of them, and gives them Y wide.
"""

import copy
import ctypes
import math
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from elmore import compiled
from elmore.errors import ConfigError
from elmore.model.lstm import eager, steps, tiles
from elmore.model.lstm.layer import ProjectedLSTM
from elmore.model.lstm.reference import GATES, LSTMState, StateReset, bias_with_forget
from elmore.model.lstm.vectors import threads, wide_with_dots

SOURCE = Path(__file__).parent / "lstm" / "native" / "int8.c"
_ROWS = 8  # of a block of a weight: as in the C
_MOST = 127

Encoder = TypeVar("Encoder", bound=nn.Module)


class _Weights(ctypes.Structure):
    """`weights` of the C."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("input", "input_scales")),
        *((name, ctypes.c_void_p) for name in ("recurrent", "recurrent_scales")),
        *((name, ctypes.c_void_p) for name in ("projection", "projection_scales")),
        ("inputs", ctypes.c_void_p),
        ("input_width", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("these", "these_scales")),
        *((name, ctypes.c_void_p) for name in ("last", "last_scales")),
        *((name, ctypes.c_void_p) for name in ("shown", "shown_scales")),
    )


def works(device: torch.device) -> bool:
    """Tell whether a device has such instructions, and a way to them."""
    if device.type != "cpu":
        return False
    library = compiled.library(SOURCE, wide_with_dots())
    return library is not None and bool(library.columns_of_a_tile())


def why_missing() -> str | None:
    """Return why the C library is missing, or None where it was built."""
    return compiled.why_missing(SOURCE, wide_with_dots())


class Int8LSTM(ProjectedLSTM):
    """One layer of one direction; it takes and gives what a `ProjectedLSTM` does."""

    def __init__(self, layer: ProjectedLSTM) -> None:
        nn.Module.__init__(self)  # there is nothing to draw
        self.config = layer.config
        self._inputs, self._recurrent = map(_by_cell, (layer.input, layer.recurrent))
        self._projection = None if layer.projection is None else Int8Product(layer.projection)
        self._bias = bias_with_forget(_single(layer.bias), layer.config.forget_bias)

    def project_inputs(self, inputs: Float[Tensor, "B T I"]) -> Float[Tensor, "B T G"]:
        """Give what the inputs alone say to the gates."""
        rows = _on_cpu(inputs).flatten(0, 1)
        driven = rows.new_empty(len(rows), len(self._bias))
        self._inputs(rows.T, driven.T, gates=len(GATES))
        return driven.unflatten(0, inputs.shape[:2])

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
        given = (*state, mask, *((resets.mask, *resets.state) if resets else ()))
        inputs = _on_cpu(inputs, *given)
        state, resets = state.float(), resets and resets.float()
        wide = len(self._bias) if projected else self._inputs.shape[1]
        steps.refuse_others(inputs, mask, state, width=wide, recurrent=self._recurrent.shape)
        if tiles.can_hold(state):
            return self._in_tiles(inputs, mask, state, resets, projected=projected)
        parts = eager.Parts(
            lambda inputs: (inputs if projected else self.project_inputs(inputs)).permute(1, 2, 0),
            self._advance,
            self._projection and self._project,
        )
        return eager.read(inputs, mask, state, parts, self.config.output_clip, resets)

    def _in_tiles(
        self,
        inputs: Float[Tensor, "B T I"],
        mask: Bool[Tensor, "B T"],
        state: LSTMState,
        resets: StateReset | None,
        *,
        projected: bool,
    ) -> tuple[Float[Tensor, "B T D"], LSTMState]:
        """Do so where there are many."""
        columns = _library().columns_of_a_tile()
        turned = None if projected else tiles.tiled(inputs.transpose(0, 1), columns)
        padded = len(inputs) + columns  # at least
        rounded = (
            (0, 0) if projected else (mask.shape[1] * padded, inputs.shape[2]),
            *((padded, part.shape[1]) for part in state),
        )
        rooms = [
            room
            for count, width in rounded
            for room in (inputs.new_empty(count * width, dtype=torch.int8), inputs.new_empty(count))
        ]
        weights = (None if projected else self._inputs, self._recurrent, self._projection)
        with_ = _Weights(
            *(steps.address(part) for weight in weights for part in _parts(weight)),
            *(steps.address(turned), 0 if projected else inputs.shape[2]),
            *map(steps.address, rooms),
        )
        called = _whole(threads(len(inputs) * math.prod(self._recurrent.shape)))
        return tiles.read(
            lambda steps: _library().int8_steps(steps, ctypes.byref(with_), called),
            inputs if projected else None,
            mask,
            state,
            columns=columns,
            bias=self._bias,
            cell_clip=self.config.cell_clip,
            output_clip=self.config.output_clip,
            resets=resets,
        )

    def _advance(
        self,
        output: Float[Tensor, "B D"],
        driven: Float[Tensor, "G B"],
        cell: Float[Tensor, "H B"],
        hidden: Float[Tensor, "H B"],
    ) -> None:
        """Make a step of the cells, product and all."""
        clip = math.inf if self.config.cell_clip is None else self.config.cell_clip
        given = self._recurrent.rounding(output.T)
        _library().int8_step(
            *given.pointers,
            _pointer(driven),
            *map(_whole, driven.stride()),
            *map(_pointer, (self._bias, cell, hidden)),
            *map(_whole, (len(cell), output.shape[1], len(output))),
            ctypes.c_float(clip),
            _whole(torch.get_num_threads()),
        )

    def _project(self, hidden: Float[Tensor, "H B"], output: Float[Tensor, "B D"]) -> None:
        assert self._projection is not None
        self._projection(hidden, output.T)


class Int8Linear(nn.Module):
    """What an `nn.Linear` does."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self._product = Int8Product(linear.weight)
        self._bias = None if linear.bias is None else _single(linear.bias)

    def forward(self, rows: Float[Tensor, "M X"]) -> Float[Tensor, "M Y"]:
        """Multiply, and add the bias; the result is in float32."""
        rows = _on_cpu(rows)
        out = rows.new_empty(len(rows), self._product.shape[0])
        self._product(rows.T, out.T)
        return out if self._bias is None else out.add_(self._bias)


def with_int8(encoder: Encoder) -> Encoder:
    """Give a module of the same weights whose linear parts are in whole numbers."""
    copied = copy.copy(encoder)
    children = encoder.named_children()
    copied._modules = {
        name: Int8Linear(child) if isinstance(child, nn.Linear) else with_int8(child)
        for name, child in children
    }
    return copied


def _by_cell(weight: Float[Tensor, "G I"]) -> "Int8Product":
    """Have the four gates of each cell together."""
    return Int8Product(weight.detach().unflatten(0, (len(GATES), -1)).transpose(0, 1).flatten(0, 1))


class Int8Product:
    """W x with both factors rounded to bytes; W when it is built."""

    def __init__(self, weight: Float[Tensor, "Y X"]) -> None:
        weight = _single(weight)
        self.shape = weight.shape
        largest = weight.abs().amax(dim=1)
        self.scales = torch.where(largest == 0, 1.0, largest / _MOST).contiguous()
        whole = (weight / self.scales[:, None]).round().to(torch.int8)
        whole = functional.pad(whole, (0, -weight.shape[1] % 4, 0, -weight.shape[0] % _ROWS))
        begin = -_library().lifted_by() * whole.sum(dim=1, dtype=torch.int32)
        # blocks of rows, and in each four columns at a time; before them what its sums begin with
        fours = torch.cat([begin[:, None].view(torch.int8), whole], dim=1).unflatten(1, (-1, 4))
        self.packed = fours.unflatten(0, (-1, _ROWS)).transpose(1, 2).contiguous()

    def __call__(
        self, columns: Float[Tensor, "X M"], out: Float[Tensor, "Y M"], *, gates: int = 1
    ) -> None:
        """Multiply into `out`; of rows that have the gates of a cell together, gate by gate."""
        fits = columns.shape[0] == self.shape[1] and out.shape == (self.shape[0], columns.shape[1])
        if not (fits and steps.is_cpu_float32(columns, out)):
            raise ValueError(
                f"a weight of {tuple(self.shape)} was given {columns.dtype} of "
                f"{tuple(columns.shape)} and room of {tuple(out.shape)}: expected float32 on the "
                "CPU, and sizes that fit"
            )
        given = self.rounding(columns)
        _library().int8_multiply(
            *given.pointers,
            _pointer(out),
            *map(_whole, out.stride()),
            *map(_whole, (*self.shape, columns.shape[1], gates)),
            _whole(torch.get_num_threads()),
        )

    def rounding(self, columns: Float[Tensor, "X M"]) -> "_Rounding":
        """Give what the C needs of a weight and of columns."""
        if 1 not in columns.stride():  # either elements or neighbours must lie side by side
            columns = columns.contiguous()
        width, room = columns.shape[0], columns.shape[1] + _library().columns_of_a_tile()
        rounded = columns.new_empty(room * (width + 4), dtype=torch.int8)
        scales = columns.new_empty(room)
        return _Rounding(self.packed, self.scales, columns, rounded, scales)


class _Rounding(NamedTuple):
    """A weight with its scales, columns, and room for these when they are rounded."""

    weight: Tensor
    weight_scales: Tensor
    columns: Tensor
    rounded: Tensor
    scales: Tensor

    @property
    def pointers(self) -> list[ctypes.c_void_p | ctypes.c_int64]:
        """As the C takes them; they hold while this does."""
        return [
            *map(_pointer, self[:3]),
            *map(_whole, self.columns.stride()),
            *map(_pointer, self[3:]),
        ]


def _on_cpu(inputs: Float[Tensor, "*shape"], *others: Tensor) -> Float[Tensor, "*shape"]:
    """Return the inputs in float32; refuse tensors that are not on the CPU."""
    for tensor in (inputs, *others):
        if not tensor.is_cpu:
            raise ConfigError(
                f"layers in int8 read on the CPU, found inputs on device '{tensor.device}'; "
                "prepare the model again where it is now, or move it back"
            )
    return inputs.float()


def _single(weight: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return a copy of a weight for the C kernels: float32 on the CPU."""
    return weight.detach().to("cpu", torch.float)


def _parts(product: Int8Product | None) -> tuple[Tensor | None, Tensor | None]:
    """Give what the C knows a weight by."""
    return (None, None) if product is None else (product.packed, product.scales)


_whole = ctypes.c_int64


def _pointer(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _library() -> ctypes.CDLL:
    library = compiled.library(SOURCE, wide_with_dots())
    assert library is not None, "int8 layers are only built where they work"
    return library
