"""Read torch files that contain only tensors; no code in a pickle is ever executed."""

import pickle
import struct
import warnings
from pathlib import Path

import torch

from elmore.errors import WeightsError
from elmore.weights.convert.table import Tensors

_DAMAGE = (  # what the steps of a damaged pickle raise
    OSError,
    RuntimeError,
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    AssertionError,
    struct.error,
)


def read_state_dict(path: Path) -> Tensors:
    """Read a state_dict saved by `torch.save`; raise WeightsError for anything else."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch explains at length what is refused below
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path}: refused, because unpickling it could run code; expected a state_dict of "
            "tensors alone"
        ) from error
    except _DAMAGE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WeightsError(
            f"{path}: not a readable file of torch tensors ({reason}); is the download complete?"
        ) from error
    if not isinstance(loaded, dict) or not all(torch.is_tensor(value) for value in loaded.values()):
        raise WeightsError(f"{path}: expected a state_dict, names to tensors; found something else")
    return Tensors({str(name): tensor for name, tensor in loaded.items()})
