"""Int8 rows of a tensor, for tests of layers that hold them."""

import torch

from elmore.model import native
from elmore.model.quantize import Int8Rows


def quantize_rows(weight: torch.Tensor) -> Int8Rows:
    """Round each row to its own scale, as the library does for int8 activations."""
    rows = native.quantize_rows(weight.detach().cpu().numpy())
    return Int8Rows(*(torch.from_numpy(array).to(weight.device) for array in rows))
