"""In which numbers to compute: float32 or float64 throughout, or products in bf16."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

from elmore.train.config import TrainConfig

Precision = Literal["float32", "bf16", "float64"]


def resolve(config: TrainConfig, device: torch.device) -> Precision:
    """Say what `auto` means on this device."""
    if config.precision == "auto":
        quick = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return "bf16" if quick else "float32"
    return config.precision


def dtype(precision: Precision) -> torch.dtype:
    """Give the type of the weights."""
    return torch.float64 if precision == "float64" else torch.float32


def computing(
    precision: Precision, device: torch.device, *, cache: bool = True
) -> AbstractContextManager:
    """Run what is inside in that precision; `cache`: a weight is cast once for all its uses."""
    if precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=cache)
    return nullcontext()
