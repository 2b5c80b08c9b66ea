"""Validate padding masks: true where a token is, false where none is.

The LSTM backends apply them: natively `native/lstm.h` (`update_cells`), in torch
`lstm/pointwise.py`, on a GPU `lstm/triton.py`; `lstm/reference.py` is the definition.

Shapes: B sentences, T tokens.
"""

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from elmore.errors import DataError


def as_bool(mask: Shaped[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
    """Return a padding mask as booleans: the one place that decides what counts as a mask.

    Many libraries pass a mask as numbers (`mask.long()`, `attention_mask`), 1 where a token is.

    Raises:
        DataError: A number is neither 0 nor 1, as in the masks that are added to attention scores.
    """
    if mask.dtype == torch.bool:
        return mask
    result = mask == 1
    if not (result | (mask == 0)).all():  # this synchronises a GPU, for masks of numbers only
        raise DataError(
            f"a padding mask must be bool, or 1 where a token is and 0 where none is; found other "
            f"numbers in one of {mask.dtype}, so pass the comparison that is true for tokens"
        )
    return result


def check_shape(
    mask: Shaped[Tensor, "..."], inputs: Float[Tensor, "B T I"], name: str = "a padding mask"
) -> None:
    """Refuse a mask that does not have one element for each token.

    Backends would broadcast it, or read past its end.

    Raises:
        DataError: The shape of the mask is not (B, T).
    """
    if mask.shape != inputs.shape[:2]:
        raise DataError(
            f"{name} must have the shape {tuple(inputs.shape[:2])}, sentences by tokens, of its "
            f"inputs; found {tuple(mask.shape)}"
        )
