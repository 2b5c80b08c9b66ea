"""In which numbers to read: `exact` is float32; `fast` is int8, or bf16, where that is quicker."""

import logging
import platform
from typing import Literal

import torch

from elmore.model import int8
from elmore.model.bf16 import BF16LSTM, BiLMWithLayers
from elmore.model.bilm import BiLM

Precision = Literal["exact", "fast"]

_log = logging.getLogger(__name__)


def with_precision(model: BiLM, precision: Precision) -> BiLM:
    """Give what reads in that precision where the model is: itself, or a copy of it in less."""
    device = next(model.parameters()).device
    if precision == "exact":
        return model
    others = {weight.dtype for weight in model.parameters()} - {torch.float}
    if others:
        names = ", ".join(sorted(map(str, others)))
        _log.warning("precision 'fast' is for float32 weights: these are %s, and read so", names)
        return model
    if int8.works(device):  # and quicker than bf16 on the CPUs that have units for it
        return BiLMWithLayers(model, int8.Int8LSTM, int8.with_int8(model.tokens))
    if has_native_bf16(device):
        return BiLMWithLayers(model, BF16LSTM)
    missing = int8.why_missing() if device.type == "cpu" else None
    units = "bf16 or int8" if missing is None else "bf16"
    reason = "" if missing is None else f", and {int8.SOURCE.name} is not used: {missing}"
    _log.warning(
        "precision 'fast' is exact here: no units for %s on device '%s'%s", units, device, reason
    )
    return model


def weights_version(model: BiLM) -> object:
    """Return a value that changes when weights are moved, converted, replaced or written to.

    What `with_precision` returned is up to date for as long as this value stays the same. It does
    not change on writes that torch does not count: through `weight.data`, and to weights that
    were created in inference mode.
    """
    return [
        # a tensor that was created in inference mode has no version
        (weight.data_ptr(), weight.dtype, weight.device, weight.is_inference() or weight._version)
        for weight in model.parameters()
    ]


def has_native_bf16(device: torch.device) -> bool:
    """Tell whether a device multiplies matrices in bf16 quicker than in float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if platform.machine().lower() in ("aarch64", "arm64"):  # elsewhere this is true of emulation
        return _probe_private(torch.ops.mkldnn, "_is_mkldnn_bf16_supported")
    names = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return any(_probe_private(torch.cpu, name) for name in names)


def _probe_private(where: object, name: str) -> bool:
    """Ask a question that torch keeps private; where it is gone, the answer is no."""
    try:
        return bool(getattr(where, name)())
    except (AttributeError, RuntimeError):
        return False
