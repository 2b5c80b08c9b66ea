"""Simulate a CPU with (or without) bf16 matrix units, on any CPU.

Used by contracts/test_exact_and_fast, embed/test_elmo and model/lstm/test_eager.
"""

import pytest
import torch

from elmore.model import native
from elmore.model.lstm import eager


def multiply(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Sum in float32 and round the result once, as oneDNN does; a GPU does as it always does."""
    if rows.is_cuda:
        return torch.mm(rows, weight.T, out_dtype=torch.float32)
    return (rows.float() @ weight.float().T).to(torch.bfloat16)


def simulate_bf16_units(patch: pytest.MonkeyPatch) -> None:
    """Simulate bf16 matrix units on every device, without int8 dot products."""
    patch.setattr(eager, "has_native_bf16", lambda device: True)
    patch.setattr(native, "has_int8_dot", lambda: False)
    patch.setattr(eager, "pack_bf16", lambda weight: None)
    patch.setattr(eager, "multiply_bf16", multiply)


def disable_fast_units(patch: pytest.MonkeyPatch) -> None:
    """Simulate devices without bf16 matrix units and int8 dot products."""
    patch.setattr(eager, "has_native_bf16", lambda device: False)
    patch.setattr(native, "has_int8_dot", lambda: False)
