"""Storage of weights in a file: float32, float16, or int8 with a scale for each row.

    weight[r, c] = number[r, c] * scale[r]        numbers from -127 to 127

`int6` is stored like int8 but has numbers from -31 to 31: the file is as large, and any archive of
it, such as a wheel, is a quarter smaller.

Small tensors and vectors stay in float16: quantizing them saves little and loses more.
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int8
from torch import Tensor

from elmore.errors import WeightsError
from elmore.model.quantize import Int8Rows

Storage = Literal["float32", "float16", "int8", "int6"]

SCALE = ".scale"  # suffix of the name of a tensor with the scales of another
_MIN_SIZE = 2**14  # numbers of a tensor that is quantized
_LARGEST = {"int8": 127, "int6": 31}  # number in a row
# Scales to try, as fractions of the one without clipping: clipping the largest weights of a row may
# reduce the total error, and the more the coarser the numbers are.
_FRACTIONS = {"int8": torch.linspace(0.8, 1.0, 20), "int6": torch.linspace(0.6, 1.0, 40)}


def quantize_state(tensors: dict[str, Tensor], storage: Storage) -> dict[str, Tensor]:
    """Convert tensors to the dtype of a storage; int8 tensors get a tensor of scales."""
    if storage == "float32":
        return {name: tensor.contiguous() for name, tensor in tensors.items()}
    result = {}
    for name, tensor in tensors.items():
        quantize = storage in _LARGEST and tensor.dim() > 1 and tensor.numel() >= _MIN_SIZE
        largest = torch.finfo(torch.float16).max * (_LARGEST[storage] if quantize else 1)
        if tensor.numel() and not tensor.abs().max() <= largest:
            raise WeightsError(
                f"{name} has numbers that {storage} cannot represent; store it as float32"
            )
        if quantize:
            numbers, result[name + SCALE] = quantize_rows(tensor.flatten(1), storage)
            result[name] = numbers.view(tensor.shape)
        else:
            result[name] = tensor.to(torch.float16).contiguous()
    return result


def match_scales(names: set[str]) -> dict[str, str | None]:
    """Return the tensors of a file, each with the name of its scales or None."""
    scales = {name for name in names if name.endswith(SCALE) and name.removesuffix(SCALE) in names}
    return {name: name + SCALE if name + SCALE in scales else None for name in names - scales}


def dequantize(
    get: Callable[[str], Tensor], name: str, scale: str | None, where: str
) -> Float[Tensor, "..."] | Tensor:
    """Return one tensor of a file as it is, or as float32 where it has a scale."""
    if scale is None:
        return get(name)
    return int8_rows(get, name, scale, where).dense().view(get(name).shape)


def int8_rows(get: Callable[[str], Tensor], name: str, scale: str, where: str) -> Int8Rows:
    """Return one tensor of a file, rows of int8 and their scales, as a matrix."""
    numbers, scales = get(name), get(scale)
    if numbers.dtype != torch.int8 or numbers.dim() < 2 or scales.shape != numbers.shape[:1]:
        raise WeightsError(
            f"{where}: {name} is {numbers.dtype} of shape {tuple(numbers.shape)} and its scale has "
            f"shape {tuple(scales.shape)}; expected rows of int8 and one scale per row"
        )
    return Int8Rows(numbers.flatten(1), scales.to(torch.float32))


def quantize_rows(
    rows: Float[Tensor, "R C"], storage: Storage = "int8"
) -> tuple[Int8[Tensor, "R C"], Float[Tensor, " R"]]:
    """Quantize rows to int8 or int6, each with the scale of the least squared error."""
    limit = _LARGEST[storage]
    rows = rows.to(torch.float32)
    largest = rows.abs().amax(dim=1)
    best = torch.full_like(largest, torch.inf)
    numbers, scales = torch.zeros_like(rows, dtype=torch.int8), torch.zeros_like(largest)
    for fraction in _FRACTIONS[storage]:
        # as float16, like in the file; any scale is right for a row of zeros
        scale = (largest * fraction / limit).to(torch.float16).clamp(min=2**-24).to(torch.float32)
        tried = (rows / scale[:, None]).round().clamp(-limit, limit)
        loss = (tried * scale[:, None] - rows).square().sum(dim=1)
        better = loss < best
        best = torch.where(better, loss, best)
        scales = torch.where(better, scale, scales)
        numbers[better] = tried[better].to(torch.int8)
    return numbers, scales.to(torch.float16)
