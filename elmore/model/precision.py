"""The precision of inference: "exact", that of the weights, or "fast", int8 or bf16."""

import logging

import torch

from elmore.model import native
from elmore.model.bilm import BiLM, share_weights
from elmore.model.config import Precision
from elmore.model.linear import Linear
from elmore.model.lstm.layer import ProjectedLSTM

_log = logging.getLogger(__name__)


def with_precision(model: BiLM, precision: Precision) -> BiLM:
    """Return a network of that precision with the weights of the model; itself for "exact".

    It follows the model: in-place changes of the weights, moves and conversions. Where "fast" is
    exact a warning says why.
    """
    if precision == "exact":
        return model
    fast = share_weights(model)
    for module in fast.modules():
        if isinstance(module, ProjectedLSTM | Linear):
            module.precision = precision
    if not fast.is_fast:
        _log.warning("precision 'fast' is exact here: %s", _why_exact(model))
    return fast


def _why_exact(model: BiLM) -> str:
    device = next(model.parameters()).device
    other_dtypes = {weight.dtype for weight in model.parameters()} - {torch.float}
    if other_dtypes:
        names = ", ".join(sorted(map(str, other_dtypes)))
        return f"it is for float32 weights, and these are {names}"
    missing = native.why_missing() if device.type == "cpu" else None
    units = "bf16 or int8" if missing is None else "bf16"
    reason = "" if missing is None else f", and the native library is not used: {missing}"
    return f"no units for {units} on device '{device}'{reason}"
