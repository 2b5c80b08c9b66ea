"""A safetensors file of weights: written in some storage, checked when it is read."""

from collections.abc import Mapping, Set
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from elmore.errors import WeightsError
from elmore.model.quantize import Int8Rows
from elmore.weights.bundle import check_weights
from elmore.weights.storage import Storage, dequantize, int8_rows, match_scales, quantize_state


def write(path: Path, tensors: dict[str, Tensor], storage: Storage, destination: Path) -> None:
    """Write tensors to a file; `destination` is the path that an error names."""
    stored = quantize_state(tensors, storage)
    try:
        save_file(stored, path, metadata={"format": "pt"})
    except SafetensorError as error:  # a full disk raises this, not OSError
        raise WeightsError(f"{destination}: could not be written ({error})") from error


def read(
    path: Path,
    expected: Mapping[str, Tensor],
    optional: Mapping[str, Tensor] | None = None,
    matrices: Set[str] = frozenset(),
) -> tuple[dict[str, Tensor], dict[str, Int8Rows]]:
    """Read a file as float32, memory-mapped if it is stored so.

    Args:
        path: The file.
        expected: The tensors that it must have, by name; their shapes are compared.
        optional: Further tensors: it must have all or none of them.
        matrices: Names of matrices that stay int8 if they are stored so.

    Returns:
        The tensors, and the matrices in int8.

    Raises:
        WeightsError: The file is damaged, or of another model.
    """
    tensors, rows = {}, {}
    try:
        with safe_open(path, framework="pt") as file:
            names = match_scales(set(file.keys()))
            if optional and not optional.keys().isdisjoint(names):
                expected = {**expected, **optional}
            _check_names(set(names), set(expected), path)
            for name, scale in names.items():
                if scale is not None and name in matrices:
                    rows[name] = int8_rows(file.get_tensor, name, scale, str(path))
                    check_weights(rows[name].scales, f"{path}: {name}")
                else:
                    tensor = dequantize(file.get_tensor, name, scale, str(path))
                    check_weights(tensor, f"{path}: {name}")
                    tensors[name] = tensor.to(torch.float32)
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{path}: not a readable safetensors file ({error})") from error
    for name, tensor in (tensors | rows).items():
        if tensor.shape != expected[name].shape:
            raise WeightsError(
                f"{path}: {name} has shape {tuple(tensor.shape)}, config.json asks for "
                f"{tuple(expected[name].shape)}; are they of the same model?"
            )
    return tensors, rows


def _check_names(found: set[str], expected: set[str], path: Path) -> None:
    missing = sorted(expected - found)
    if missing:
        raise WeightsError(f"{path}: {missing[0]} is missing; is config.json of the same model?")
    unknown = sorted(found - expected)
    if unknown:
        raise WeightsError(
            f"{path}: {unknown[0]} is not part of the network of config.json; are they of the same "
            "model?"
        )
