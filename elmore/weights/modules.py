"""The network and the softmax of a model as modules of torch."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from elmore.errors import WeightsError
from elmore.model.bilm import BiLM
from elmore.model.config import BiLMConfig, SoftmaxConfig
from elmore.model.native import Int8Matrix
from elmore.model.native_bilm import Arrays
from elmore.model.quantize import Int8Rows
from elmore.model.softmax import AdaptiveSoftmax, Softmax
from elmore.model.softmax import build as build_softmax
from elmore.model.state import BiLMState

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # allowed in weight files
_Module = TypeVar("_Module", bound=nn.Module)


def bilm_from_arrays(config: BiLMConfig, arrays: Arrays) -> BiLM:
    """Return a network whose weights are in the memory of arrays."""
    model = meta_model(config)
    rows = {name: array for name, array in arrays.items() if isinstance(array, Int8Matrix)}
    dense = {name: torch.from_numpy(array) for name, array in arrays.items() if name not in rows}
    model.load_state_dict(dense, assign=True, strict=False)
    for name, matrix in rows.items():
        model.quantize(name, Int8Rows(*map(torch.from_numpy, matrix)))
    return model.eval()


def softmax_from_arrays(
    config: SoftmaxConfig, num_words: int, dim: int, arrays: Arrays
) -> Softmax | AdaptiveSoftmax:
    """Return a softmax whose weights are in the memory of arrays."""
    with on_meta_device():
        softmax = build_softmax(config, num_words, dim)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    softmax.load_state_dict(tensors, assign=True)
    return softmax.eval()


def state_from_arrays(state: BiLMState | None) -> BiLMState | None:
    """Return a recurrent state as tensors."""
    return None if state is None else BiLMState(*map(torch.from_numpy, state))


def copy_for_inference(model: BiLM) -> BiLM:
    """Return a frozen copy in the same memory; loading a state dict into it makes its own."""
    copied = copy_sharing_memory(model)
    copied.register_load_state_dict_pre_hook(_unshare_memory)
    return copied


def copy_sharing_memory(module: _Module) -> _Module:
    """Return a frozen copy of a module that shares the memory of its weights until it is moved."""
    weights = {
        id(weight): nn.Parameter(weight.detach(), requires_grad=False)
        for weight in module.parameters()
    } | {id(buffer): buffer for buffer in module.buffers()}
    return copy.deepcopy(module, weights).eval()


def _unshare_memory(model: nn.Module, *_: object) -> None:
    """Copy the weights of a network, so that loading does not overwrite shared memory."""
    for weight in model.parameters():
        weight.data = weight.data.clone()


def meta_model(config: BiLMConfig) -> BiLM:
    """Build the network on the meta device; load the weights with `assign=True`."""
    with on_meta_device():
        return BiLM(config)


@contextmanager
def on_meta_device() -> Iterator[None]:
    """Build modules on the meta device, without memory for their weights."""
    with torch.device("meta"), _SkipInit():
        yield


def check_weights(tensor: Tensor, where: str) -> None:
    """Raise WeightsError unless weights are dense floats that are finite in float32."""
    if tensor.layout != torch.strided or tensor.dtype not in _DTYPES or tensor.is_meta:
        raise WeightsError(
            f"{where} has {tensor.dtype}, expected dense float16, bfloat16, float32 or float64"
        )
    extremes = torch.aminmax(tensor) if tensor.numel() else ()
    if not all(torch.isfinite(extreme.float()) for extreme in extremes):
        count = int((~torch.isfinite(tensor.float())).sum())
        raise WeightsError(
            f"{where} has {count} values that are not finite in float32; the file is damaged or "
            "its training diverged: use another copy"
        )


class _SkipInit(TorchFunctionMode):
    """Skips `normal_`, which on the meta device makes torch load its compiler (1.5 s)."""

    def __torch_function__(
        self, func: Callable, types: object, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:  # noqa: ANN401 -- as torch has it
        kwargs = kwargs or {}
        return kwargs["tensor"] if func is nn.init.normal_ else func(*args, **kwargs)
