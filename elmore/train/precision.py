"""Training precision: float32 or float64 throughout, or matrix products in bf16 (autocast)."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

from elmore.train.config import TrainConfig

Precision = Literal["float32", "bf16", "float64"]


def resolve(config: TrainConfig, device: torch.device) -> Precision:
    """Return the configured precision; `auto` is bf16 where the GPU supports it."""
    if config.precision == "auto":
        bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return "bf16" if bf16 else "float32"
    return config.precision


def weight_dtype(precision: Precision) -> torch.dtype:
    """Return the dtype of the weights."""
    return torch.float64 if precision == "float64" else torch.float32


def autocast(
    precision: Precision, device: torch.device, *, cache: bool = True
) -> AbstractContextManager:
    """Return the autocast context of a precision; `cache`: cast each weight once per context."""
    if precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=cache)
    return nullcontext()
