"""How weights lie in a file: as float32, as float16, or as int8 with a scale for each row.

    weight[r, c] = number[r, c] * scale[r]        numbers from -127 to 127

Small tensors, and those without rows, are worth more than their bytes: they stay in float16.
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int8
from torch import Tensor

from elmore.errors import WeightsError
from elmore.model.quantize import Int8Rows

Storage = Literal["float32", "float16", "int8"]

SCALE = ".scale"  # after the name of a tensor: what its rows are multiplied by
_LARGE = 2**14  # numbers
_MOST = 127
_TRIED = 20  # scales: the largest weight of a row may be cut if the others gain by it


def packed(tensors: dict[str, Tensor], storage: Storage) -> dict[str, Tensor]:
    """Lay out tensors for a file."""
    if storage == "float32":
        return {name: tensor.contiguous() for name, tensor in tensors.items()}
    found = {}
    for name, tensor in tensors.items():
        in_bytes = storage == "int8" and tensor.dim() > 1 and tensor.numel() >= _LARGE
        most = torch.finfo(torch.float16).max * (_MOST if in_bytes else 1)
        if tensor.numel() and not tensor.abs().max() <= most:
            raise WeightsError(f"{name} holds numbers that {storage} cannot; store it as float32")
        if in_bytes:
            numbers, found[name + SCALE] = rounded(tensor.flatten(1))
            found[name] = numbers.view(tensor.shape)
        else:
            found[name] = tensor.to(torch.float16).contiguous()
    return found


def stored(names: set[str]) -> dict[str, str | None]:
    """Tell the tensors of a file from their scales: for each its scale, where it has one."""
    scales = {name for name in names if name.endswith(SCALE) and name.removesuffix(SCALE) in names}
    return {name: name + SCALE if name + SCALE in scales else None for name in names - scales}


def unpacked(
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
            f"shape {tuple(scales.shape)}; expected rows of int8 and one scale for each"
        )
    return Int8Rows(numbers.flatten(1), scales.to(torch.float32))


def rounded(
    rows: Float[Tensor, "R C"],
) -> tuple[Int8[Tensor, "R C"], Float[Tensor, " R"]]:
    """Round rows to int8, each by the scale that loses least (in squares) of those tried."""
    rows = rows.to(torch.float32)
    largest = rows.abs().amax(dim=1)
    best = torch.full_like(largest, torch.inf)
    numbers, scales = torch.zeros_like(rows, dtype=torch.int8), torch.zeros_like(largest)
    for share in torch.linspace(0.8, 1.0, _TRIED):
        # the scale as the file will hold it; where a row is nothing but zeros any will do
        scale = (largest * share / _MOST).to(torch.float16).clamp(min=2**-24).to(torch.float32)
        tried = (rows / scale[:, None]).round().clamp(-_MOST, _MOST)
        loss = (tried * scale[:, None] - rows).square().sum(dim=1)
        better = loss < best
        best = torch.where(better, loss, best)
        scales = torch.where(better, scale, scales)
        numbers[better] = tried[better].to(torch.int8)
    return numbers, scales.to(torch.float16)
