"""Storage of weights in a file: float32, float16, or int8 with a scale for each row.

    weight[r, c] = number[r, c] * scale[r]        numbers from -127 to 127

`int6` is stored like int8, but the rows of a matrix share one scale, so coarse that few numbers
exceed 31. The file is as large, and an archive of it, such as a wheel, is 30 % smaller: compressed,
a number takes as many bits as it needs. A scale of its own would give a row of small weights more
bits than the same absolute error takes.

The words of a softmax tail that was trained in 2 or 4 bits (`softmax.tail_bits`) are stored so
whatever the storage: odd numbers, packed into bytes, with a scale for each row.

Small tensors and vectors stay in float16: quantizing them saves little and loses more.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int8, UInt8
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from elmore.errors import ConfigError, WeightsError
from elmore.model.rounding import round_rows
from elmore.weights.bit_packing import pack_bits
from elmore.weights.tensor_file import SCALE, match_scales

Storage = Literal["float32", "float16", "int8", "int6"]

_MIN_SIZE = 2**14  # numbers of a tensor that is quantized
_MAX = 127
_NUM_SCALES = 20  # to try: clipping the largest weight of a row may reduce the total error
_STEPS_PER_RMS = 8.5  # of int6: a normal distribution then takes 5.1 bits a number


def write(
    path: Path,
    tensors: Mapping[str, Tensor],
    storage: Storage,
    destination: Path,
    bits: Mapping[str, int] | None = None,
) -> None:
    """Write tensors to a file.

    Args:
        path: The file.
        tensors: The tensors by name.
        storage: Their storage.
        destination: The path that an error names.
        bits: Matrices that are stored in fewer than 8 bits, with their bits.

    Raises:
        ConfigError: There is no such storage.
        WeightsError: A number is too large for it, or the file cannot be written.
    """
    packed = {}
    for name, count in (bits or {}).items():
        _, scales = packed[name] = pack_rows(tensors[name], count)
        if not scales.isfinite().all():
            raise WeightsError(
                f"{name} has numbers that {count} bits cannot represent with a scale in float16; "
                "train it again with softmax.tail_bits=8"
            )
    others = {name: tensor for name, tensor in tensors.items() if name not in packed}
    stored = quantize_state(others, storage)
    for name, (numbers, scales) in packed.items():
        stored[name], stored[name + SCALE] = numbers, scales
    try:
        save_file(stored, path, metadata={"format": "pt"})
    except SafetensorError as error:  # a full disk raises this, not OSError
        raise WeightsError(f"{destination}: could not be written ({error})") from error


def quantize_state(tensors: Mapping[str, Tensor], storage: Storage) -> dict[str, Tensor]:
    """Convert tensors to the dtype of a storage; int8 tensors get a tensor of scales.

    Raises:
        ConfigError: There is no such storage.
        WeightsError: A number is too large for it.
    """
    if storage not in get_args(Storage):
        known = ", ".join(get_args(Storage))
        raise ConfigError(f"storage must be one of {known}, found {storage!r}")
    if storage == "float32":
        return {name: tensor.contiguous() for name, tensor in tensors.items()}
    result = {}
    for name, tensor in tensors.items():
        quantize = storage != "float16" and tensor.dim() > 1 and tensor.numel() >= _MIN_SIZE
        largest = torch.finfo(torch.float16).max * (_MAX if quantize else 1)
        if tensor.numel() and not tensor.abs().max() <= largest:
            raise WeightsError(
                f"{name} has numbers that {storage} cannot represent; store it as float32"
            )
        if quantize:
            quantize_matrix = quantize_rows if storage == "int8" else quantize_to_one_step
            numbers, result[name + SCALE] = quantize_matrix(tensor.flatten(1))
            result[name] = numbers.view(tensor.shape)
        else:
            result[name] = tensor.to(torch.float16).contiguous()
    return result


def dequantize_state(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors that a file with these gives, in float32."""
    return {
        name: tensors[name].float()
        if scale is None
        else (tensors[name].flatten(1).float() * tensors[scale].float()[:, None]).view(
            tensors[name].shape
        )
        for name, scale in match_scales(set(tensors)).items()
    }


def quantize_rows(
    rows: Float[Tensor, "R C"],
) -> tuple[Int8[Tensor, "R C"], Float[Tensor, " R"]]:
    """Quantize rows to int8, each with the scale of the least squared error of those tried."""
    rows = rows.to(torch.float32)
    largest = rows.abs().amax(dim=1)
    best = torch.full_like(largest, torch.inf)
    numbers, scales = torch.zeros_like(rows, dtype=torch.int8), torch.zeros_like(largest)
    for fraction in torch.linspace(0.8, 1.0, _NUM_SCALES):
        scale = _storable(largest * fraction / _MAX)
        tried = _round(rows, scale)
        loss = (tried * scale[:, None] - rows).square().sum(dim=1)
        better = loss < best
        best = torch.where(better, loss, best)
        scales = torch.where(better, scale, scales)
        numbers[better] = tried[better].to(torch.int8)
    return numbers, scales.to(torch.float16)


def quantize_to_one_step(
    rows: Float[Tensor, "R C"],
) -> tuple[Int8[Tensor, "R C"], Float[Tensor, " R"]]:
    """Quantize rows to int8 with one scale for all, larger only where a number would exceed 127."""
    rows = rows.to(torch.float32)
    step = rows.square().mean().sqrt() / _STEPS_PER_RMS
    scales = _storable(torch.maximum(step, rows.abs().amax(dim=1) / _MAX))
    return _round(rows, scales).to(torch.int8), scales.to(torch.float16)


def pack_rows(
    rows: Float[Tensor, "R C"], bits: int
) -> tuple[UInt8[Tensor, "R W"], Float[Tensor, " R"]]:
    """Round rows to 2 or 4 bits a number, and pack these into bytes."""
    numbers, scales = round_rows(rows.detach().to(torch.float32), bits)
    codes = ((numbers + (2**bits - 1)) / 2).nan_to_num().to(torch.uint8).cpu().numpy()
    return torch.from_numpy(pack_bits(codes, bits)), scales[:, 0].to(torch.float16)


def _storable(scales: Float[Tensor, " R"]) -> Float[Tensor, " R"]:
    """Round scales to float16, as in the file; any scale is right for a row of zeros."""
    return scales.to(torch.float16).clamp(min=2**-24).to(torch.float32)


def _round(rows: Float[Tensor, "R C"], scales: Float[Tensor, " R"]) -> Float[Tensor, "R C"]:
    return (rows / scales[:, None]).round().clamp(-_MAX, _MAX)
