"""What runs a model: native code on a CPU, and torch on a GPU and where there is no library.

torch is imported only for a model that it holds.
"""

from typing import TYPE_CHECKING, Any

from elmore.embed.device import HOST, Device, HostDevice, Network, native_network
from elmore.errors import ConfigError
from elmore.extras import say_missing
from elmore.model.bilm_arrays import BiLMArrays, SoftmaxArrays
from elmore.model.config import Precision
from elmore.model.state import BiLMState

if TYPE_CHECKING:
    import torch

Model = Any
"""A `BiLM`, or `BiLMArrays` where torch is not installed."""


def network_of(model: Model) -> Network:
    """Return what runs a model: native code where it can, else torch."""
    native = model.pack()
    if native is not None:
        return native_network(native, fast=model.is_fast)
    from elmore.embed.torch_device import torch_network

    return torch_network(model)


def io_device(model: Model) -> Device:
    """Return the device whose arrays a model takes and returns: of torch for every `BiLM`.

    That of its network may be another: native code takes arrays of numpy.
    """
    if isinstance(model, BiLMArrays):
        return HOST
    from elmore.embed.torch_device import TorchDevice

    return TorchDevice(next(model.parameters()))


def start_rows(model: Model, start: BiLMState | None, num_rows: int) -> BiLMState:
    """Return an initial state for rows of the model itself; zeros for None."""
    device = io_device(model)
    row = device.initial_state(model.config, start)
    return BiLMState(*(device.repeat_row(part, num_rows) for part in row))


def device_of(model: Model) -> "torch.device | HostDevice":
    """Return the device of a model."""
    return HOST if isinstance(model, BiLMArrays) else next(model.parameters()).device


def with_precision(model: Model, precision: Precision) -> Model:
    """Return a network of that precision with the weights of the model."""
    if isinstance(model, BiLMArrays):
        return model.with_precision(precision)
    from elmore.model import precision as torch_precision

    return torch_precision.with_precision(model, precision)


def move(module: Model, device: "str | torch.device") -> None:
    """Move a network or a softmax to a device; "auto" is a GPU where there is one.

    Raises:
        ConfigError: The device cannot be used.
    """
    if isinstance(module, BiLMArrays | SoftmaxArrays):
        if str(device) not in ("auto", "cpu"):
            raise ConfigError(say_missing(f"device {str(device)!r}", "torch"))
        return
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        if torch.device(device).type == "meta":  # torch would do it, but the weights would be lost
            raise ConfigError(f"device {str(device)!r} cannot be used here; use auto, cpu or cuda")
        module.to(device)
    except (RuntimeError, AssertionError) as error:  # torch has no class of its own for it
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device {str(device)!r} cannot be used here: {reason}") from error
