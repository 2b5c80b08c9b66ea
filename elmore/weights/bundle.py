"""A loaded model: network, alphabet, vocabulary, softmax and card."""

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from elmore.errors import ConfigError, WeightsError
from elmore.model.bilm import BiLM, BiLMState
from elmore.model.config import BiLMConfig
from elmore.model.layer_stack import LayerStack
from elmore.model.mix import SavedMix
from elmore.model.softmax import AdaptiveSoftmax, Softmax
from elmore.text.characters import Alphabet, encode_batch
from elmore.text.vocabulary import Vocabulary
from elmore.weights.pooling import TextPooling

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # allowed in weight files
_Module = TypeVar("_Module", bound=nn.Module)


@dataclass(frozen=True, kw_only=True)
class Card:
    """Facts about a model for its users; empty if unknown."""

    name: str = ""
    language: str = ""
    licence: str = ""
    data: str = ""
    source: str = ""
    """The original format and files."""
    training: dict | None = None
    """Provenance: recipe, corpus, scores, versions."""

    def __post_init__(self) -> None:
        scores = (self.training or {}).get("scores", {})
        values = scores.values() if isinstance(scores, dict) else [None]
        if not all(_is_score(value) for value in values):
            raise ConfigError("training.scores must map names to numbers")


def _is_score(value: object) -> bool:
    is_int = type(value) is int and abs(value) <= sys.float_info.max
    return is_int or type(value) is float


@dataclass(frozen=True)
class Bundle:
    """One loaded model."""

    model: BiLM
    alphabet: Alphabet
    vocabulary: Vocabulary | None = None
    card: Card = field(default_factory=Card)
    options: dict[str, Any] | None = None
    """The original options.json, for exporting it unchanged."""
    warm_state: BiLMState | None = None
    mixes: tuple[SavedMix, ...] = ()
    """Layer mixes that were trained for a task."""
    softmax: Softmax | AdaptiveSoftmax | None = None
    """Over the words of the vocabulary; published weights have none."""
    byte_counts: tuple[int, ...] | None = None
    """Counts of the bytes in the training text, and of its words."""
    lacks_softmax: bool = False
    """Whether the model has a softmax that its folder lacks: softmax.safetensors is missing."""
    poolings: dict[str, TextPooling] = field(default_factory=dict)
    """Learned ways to pool the vectors of a text, by name; the first is the default."""

    @property
    def config(self) -> BiLMConfig:
        """The network configuration."""
        return self.model.config

    def run(
        self,
        sentences: Sequence[Sequence[str]],
        state: BiLMState | None = None,
        *,
        training: bool = False,
    ) -> tuple[LayerStack, BiLMState]:
        """Run a batch of tokenized sentences; the result includes the boundaries.

        Dropout is active only with `training`, whatever mode the network is in.
        """
        device = next(self.model.parameters()).device
        ids = encode_batch(self.alphabet, sentences)
        tensors = [None if part is None else torch.from_numpy(part).to(device) for part in ids]
        return self.model(*tensors, state=state, training=training)

    def sharing_weights(self) -> "Bundle":
        """Return a bundle with a frozen network of its own that shares memory with these weights.

        In-place writes to these weights, such as an optimizer step, reach the copy too. Moving,
        converting, deep-copying or loading a state dict gives the copy memory of its own first.
        Every other in-place write to the copy's weights writes into these.
        """
        model = copy_sharing_memory(self.model)
        model.register_load_state_dict_pre_hook(_unshare_memory)
        return replace(self, model=model)

    def up_to_layer(self, max_layer: int) -> "Bundle":
        """Return the model without the LSTM layers above `max_layer`.

        Raises:
            ConfigError: There is no such layer.
        """
        most = self.config.lstm.num_layers
        if not isinstance(max_layer, int) or not 1 <= max_layer <= most:
            raise ConfigError(f"max_layer must be between 1 and {most}, found {max_layer!r}")
        model = self.sharing_weights().model
        model.truncate(max_layer)
        state = self.warm_state
        if state is not None:
            state = BiLMState(state.output[:, :max_layer], state.cell[:, :max_layer])
        whole = replace(self, model=model.eval(), options=None, warm_state=state, mixes=())
        if max_layer == most:
            return whole
        # The softmax is on top of the last layer, and poolings are learned for all layers
        return replace(whole, softmax=None, lacks_softmax=False, poolings={})


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
    """Raise WeightsError unless weights are dense, finite floats."""
    if tensor.layout != torch.strided or tensor.dtype not in _DTYPES or tensor.is_meta:
        raise WeightsError(
            f"{where} has {tensor.dtype}, expected dense float16, bfloat16, float32 or float64"
        )
    if tensor.numel() and not torch.isfinite(torch.stack(torch.aminmax(tensor))).all():
        count = int((~torch.isfinite(tensor)).sum())
        raise WeightsError(
            f"{where} has {count} values that are not finite; the file is damaged or its "
            "training diverged: use another copy"
        )


class _SkipInit(TorchFunctionMode):
    """Skips `normal_`, which on the meta device makes torch load its compiler (1.5 s)."""

    def __torch_function__(
        self, func: Callable, types: object, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:  # noqa: ANN401 -- as torch has it
        kwargs = kwargs or {}
        return kwargs["tensor"] if func is nn.init.normal_ else func(*args, **kwargs)
