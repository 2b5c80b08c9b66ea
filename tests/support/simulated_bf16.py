"""Simulate a CPU with (or without) bf16 matrix units, on any CPU.

Used by contracts/test_exact_and_fast, embed/test_elmo and model/test_bf16.
"""

import pytest
import torch

from elmore.model import bf16, precision


def multiply(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Sum in float32 and round the result once, as oneDNN does; a GPU does as it always does."""
    if rows.is_cuda:
        return torch.mm(rows, weight.T, out_dtype=torch.float32)
    return (rows.float() @ weight.float().T).to(torch.bfloat16)


def give_units(patch: pytest.MonkeyPatch) -> None:
    """Let every device have matrix units, and none dot products of bytes."""
    patch.setattr(precision, "has_native_bf16", lambda device: True)
    patch.setattr(precision.int8, "works", lambda device: False)
    patch.setattr(bf16, "packed", lambda weight: None)
    patch.setattr(bf16, "multiply", multiply)


def take_units(patch: pytest.MonkeyPatch) -> None:
    """Let no device have any, nor dot products of bytes."""
    patch.setattr(precision, "has_native_bf16", lambda device: False)
    patch.setattr(precision.int8, "works", lambda device: False)
